"""A process that has imported the large libraries; the stages of a chain run as forks of it.

Importing torch, transformers, Prefect and MLflow takes longer than the work of many stages.  So a chain starts this
program once, ``python -m tasks.services.preloaded <socket>``, and every ``python -m flows.<stage>`` asks it for a fork
that does its work (`tasks.services.stage_proxy`).  It imports only libraries, never code of this project, because that
may change while a chain runs.  The socket is in the project's ``.symposium`` folder; only its owner can use it.

A GPU cannot be used in a fork of a process that has initialised it.  So it initialises none, and ends at once if a
library has done so.
"""

import atexit
import contextlib
import gc
import importlib
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pipeline_lib.storage import has_ended, process_label
from tasks.services.end_with_parent import STOP_S, end_with, end_within
from tasks.services.process_environment import child_environment, places, prepare
from tasks.services.processes import start, stop
from tasks.services.stage_proxy import ADDRESS, address_in, differing, receive, send

LIBRARIES = (
    "torch",
    "pydantic.v1",
    "prefect.flow_engine",
    "prefect.task_engine",
    "prefect.artifacts",
    "prefect.events.worker",
    "prefect.utilities.visualization",
    "anyio._backends._asyncio",
    "mlflow.tracking",
    "mlflow.store.tracking.sqlalchemy_workspace_store",
    "mlflow.store.model_registry.sqlalchemy_workspace_store",
    "alembic.command",
    "sqlalchemy.dialects.sqlite",
    "tokenizers",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.qwen3.modeling_qwen3",
    "scipy.stats",
)
"""What most stages import, sooner or later; the rest they import themselves."""

READY_S = 120.0
"""Seconds after which stages do without a process that is not ready."""

_OWN = {"tasks", "flows", "pipeline_lib"}


@contextlib.contextmanager
def preloaded(project: Path, stages: int, jobs: int) -> Iterator[Callable[[], dict[str, str]]]:
    """Run the process for the length of a ``with`` block, if there are more stages than can start at once.

    Args:
        project: the working directory of the stages.
        stages: how many there are to run.
        jobs: how many run side by side.

    Yields:
        what waits until the process is ready, and returns the variable by which stages find it; none where it is of no
        use, and stages load the libraries themselves.
    """
    if stages <= jobs:
        yield dict
        return
    path = places().home / f"preloaded-{process_label()}.sock"
    path.unlink(missing_ok=True)  # of a killed process with the same number
    program = [sys.executable, "-m", "tasks.services.preloaded", str(path)]
    process = start(program, child_environment(PYTHONUNBUFFERED="1"), project, subprocess.DEVNULL)

    def wait() -> dict[str, str]:
        end = time.monotonic() + READY_S
        while not path.exists() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        return {ADDRESS: str(path)} if process.poll() is None else {}

    try:
        yield wait
    finally:
        stop(process)
        path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """A request for a fork."""

    request: Mapping[str, Any]  #: module, arguments, environment and working directory of the requesting process
    descriptors: Sequence[int]  #: its input, output and errors, open here
    client: socket.socket  #: the connection to it
    parent: int  #: process id of the process that waits for its end


def serve(path: Path) -> ForkRequest | None:
    """Load the libraries, then fork a process for every request, until SIGTERM.

    Returns, in a fork, what it is to be; None if forks are of no use.
    """
    prepare()
    _remove_abandoned(path.parent)
    before = dict(os.environ)
    # Libraries ask whether there is a GPU.  Asked in this way, the answer comes from the driver's library alone.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    for library in LIBRARIES:
        importlib.import_module(library)
    theirs = {name: value for name, value in os.environ.items() if before.get(name) != value}
    if sys.platform != "linux" or threading.active_count() > 1 or _holds_gpu():
        return None
    gc.collect()
    gc.freeze()  # the collector would otherwise touch, and so copy, every page of every fork
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait for the forks
    with socket.socket(socket.AF_UNIX) as listener:
        unready = path.with_suffix(".new")
        unready.unlink(missing_ok=True)
        umask = os.umask(0o077)
        listener.bind(address_in(unready))
        os.umask(umask)
        listener.listen()
        unready.rename(path)  # who finds it can connect
        while True:
            if fork := _fork(listener.accept()[0], before):
                fork.request["environment"].update(theirs)
                return fork


def become(fork: ForkRequest) -> NoReturn:
    """Run, in a fork, the module of the requesting process, and end as the interpreter would.

    But for taking down the libraries module by module, which takes a second and changes nothing.
    """
    end_with(fork.parent)
    for target, descriptor in enumerate(fork.descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(fork.request["environment"])
    os.chdir(fork.request["folder"])
    sys.path[0] = fork.request["folder"]  # where python -m looks first
    for name in [name for name in sys.modules if name.partition(".")[0] in _OWN]:
        del sys.modules[name]
    sys.argv = [fork.request["module"], *fork.request["arguments"]]
    threading.Thread(target=_end_with, args=(fork.client,), name="client", daemon=True).start()
    status: object = 0
    try:
        runpy.run_module(fork.request["module"], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        status = ended.code
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are no daemons
    atexit._run_exitfuncs()
    if not isinstance(status, int | None):
        sys.stderr.write(f"{status}\n")
        status = 1
    with contextlib.suppress(OSError, ValueError):  # the reader is gone
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status or 0)


def _fork(client: socket.socket, environment: Mapping[str, str]) -> ForkRequest | None:
    """Fork for a request whose environment is that in which the libraries were imported; return it in the fork."""
    client.settimeout(10.0)
    with client, contextlib.suppress(OSError, ValueError):
        request, descriptors = receive(client, descriptors=3)
        server = os.getpid()
        differ = differing(environment, request["environment"])
        if differ:
            send(client, {"pid": 0, "differ": ", ".join(differ)})
        elif os.fork() == 0:
            return _fork_and_wait(request, descriptors, client, server)
        for descriptor in descriptors:
            os.close(descriptor)
    return None


def _fork_and_wait(
    request: Mapping[str, Any], descriptors: Sequence[int], client: socket.socket, server: int
) -> ForkRequest:
    """Return in a fork what it is to be; tell the client its number and how it ends, and end this process."""
    with contextlib.suppress(OSError):  # no fork, or the client is gone, as the fork notices
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        end_with(server)
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            client.settimeout(None)
            return ForkRequest(request, descriptors, client.dup(), parent)
        for descriptor in descriptors:
            os.close(descriptor)
        send(client, {"pid": pid})
        _, status, used = os.wait4(pid, 0)
        send(client, {"status": os.waitstatus_to_exitcode(status), "held": used.ru_maxrss << 10})
    os._exit(0)


def _remove_abandoned(folder: Path) -> None:
    """Remove the sockets of processes that were killed."""
    for socket_file in [*folder.glob("preloaded-*.sock"), *folder.glob("preloaded-*.new")]:
        if has_ended(socket_file.stem.removeprefix("preloaded-")):
            socket_file.unlink(missing_ok=True)


def _end_with(client: socket.socket) -> None:
    """End this process when the requesting process is gone."""
    with contextlib.suppress(OSError):
        while client.recv(1):
            pass
    end_within(STOP_S)


def _holds_gpu() -> bool:
    torch = sys.modules["torch"]  # which this process has loaded
    return torch.cuda.is_initialized() or torch.xpu.is_initialized()


if __name__ == "__main__":
    if fork := serve(Path(sys.argv[1])):
        become(fork)
