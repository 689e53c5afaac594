"""Writes down which modules of the project each stage imports and which files it opens for reading."""

import os
import sys

_TO = os.environ.get("TRACE_TO", "")
_OURS = ("pipeline_lib", "tasks", "flows")


def _watch(event: str, arguments: tuple) -> None:
    if event not in ("import", "open") or not (stage := os.environ.get("DVC_STAGE", "")):
        return
    name = arguments[0]
    if event == "import" and name.partition(".")[0] not in _OURS:
        return
    if event == "open":
        mode = arguments[1]
        if not isinstance(name, str) or not os.path.isabs(os.path.abspath(name)) or name.startswith(("/proc", "/dev")):
            return
        if mode is not None and "r" not in str(mode):
            return
        name = os.path.abspath(name)
        if (
            name.endswith(".py")
            or ".pyc" in name
            or "trace-" in name
            or "<" in name
            or "__editable__" in name
            or "site-packages" in name
        ):
            return
    descriptor = os.open(f"{_TO}/trace-{os.getpid()}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, f"{stage} {event} {name}\n".encode())
    os.close(descriptor)


if _TO:
    sys.addaudithook(_watch)
