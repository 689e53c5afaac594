"""The kinds of jail, how to start one, and its isolation level.

``bwrap``: bubblewrap creates namespaces and a separate file system.
``unshare``: the same without bubblewrap.
``bare``: no namespaces; only system-call filter, Landlock and resource limits.
``docker``: a container, see `docker_jail`.

The level is not derived from the jail's name: a first child tries forbidden operations, see `level_of`.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline_lib.sandbox.docker_jail import start_docker
from pipeline_lib.sandbox.packages import Packages
from pipeline_lib.sandbox.runtime import (
    DEVICES,
    ENVIRONMENT,
    HOME,
    INSIDE,
    PACKAGES,
    SCRATCH,
    VERSION,
    check_entry,
    data_files,
    find_runtime,
    own_place,
    readable_copy,
    start,
)
from pipeline_lib.sandbox.worker import JailError, ProcessJail, Worker


def _spawn(
    kind: str, command: list[str], environment: dict[str, str], config: dict[str, Any], scratch: Path | None = None
) -> Worker:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with theirs:
            process = subprocess.Popen(
                [part if part != _CONTROL else str(theirs.fileno()) for part in command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                cwd="/",
            )
    except OSError as error:
        ours.close()
        raise JailError(f"cannot start {command[0]}: {error}") from error
    jail = ProcessJail(kind, process, scratch)
    try:
        return Worker(jail, ours, config)
    except JailError as error:
        ours.close()
        raise JailError(f"{error} {jail.kill()}".strip()) from None


_CONTROL = "CONTROL"  # placeholder for the number of the control socket in a command
_FORK_SERVER = [f"{HOME}/bin/python3", *start("zygote")]  # in a jail with its own file system


def start_bwrap(slot: int, config: dict[str, Any]) -> Worker:
    """Start a fork server under bubblewrap; see `start_worker`."""
    program = shutil.which("bwrap")
    if program is None:
        raise JailError("bubblewrap is not installed (the program bwrap is not found)")
    root = os.geteuid() == 0
    _check_devices(config["user"] if root else os.geteuid())
    uid = str(config["user"])
    command = [program, "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    command += [] if root else ["--unshare-user", "--uid", uid, "--gid", uid]
    command += ["--as-pid-1", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if root else []
    binds, links = _file_system(config)
    for folder in sorted({parent for name in (*binds, "/dev/null") for parent in Path(name).parents if parent.name}):
        command += ["--perms", "0755", "--dir", str(folder)]  # bwrap's default is access for root only
    for place, source in binds.items():
        command += ["--dev-bind" if place.startswith("/dev/") else "--ro-bind", source, place]
    for place, aim in links.items():
        command += ["--symlink", aim, place]
    command += ["--perms", "0755", "--dir", "/tmp"]  # stays empty: the root becomes read-only
    command += ["--size", str(config["limits"]["file_mb"] << 20), "--perms", "1777", "--tmpfs", SCRATCH]
    command += ["--remount-ro", "/", "--chdir", SCRATCH, *_FORK_SERVER, _CONTROL]
    return _spawn("bwrap", command, _environment(), config | _enclosed(config["user"] if root else None, config))


def start_unshare(slot: int, config: dict[str, Any]) -> Worker:
    """Start a fork server in namespaces made by `inside.confine`; see `start_worker`."""
    root = os.geteuid() == 0
    _check_devices()  # they are mounted read-only
    binds, links = _file_system(config)
    plan = {
        "uid": config["user"],
        "user": not root,
        "binds": binds,
        "links": links,
        "command": _FORK_SERVER,
        "environment": _environment(),
        "scratch": SCRATCH,
        "scratch_mb": config["limits"]["file_mb"],
    }
    command = [str(find_runtime().executable), *start("confine", str(INSIDE.parent)), _CONTROL, json.dumps(plan)]
    return _spawn("unshare", command, _environment(), config | _enclosed(config["user"] if root else None, config))


def start_bare(slot: int, config: dict[str, Any]) -> Worker:
    """Start a fork server that confines itself; see `start_worker`."""
    runtime, folder = find_runtime(), Path(config["run_folder"])
    uid = config["user"] if os.geteuid() == 0 else None
    _check_devices(None if config["filters"] else uid or os.geteuid())
    stdlib, packages = runtime.stdlib, [Path(package) for package in config["packages"]]
    if uid is not None:
        check_entry(folder)
        stdlib = readable_copy(stdlib, folder)
        packages = [readable_copy(package, folder / "packages") for package in packages]
    scratch = own_place(folder, config["name"]) / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700)
    if uid is not None:
        os.chown(scratch, uid, uid)
    inside = _filters(config, "program_among_files") | {
        "path": [str(stdlib), f"{stdlib}/lib-dynload", *{str(package.parent) for package in packages}],
        "scratch": str(scratch),
        "uid": uid,
        "readable": [*map(str, (stdlib, *packages, *runtime.libraries, *data_files())), "/dev/urandom"],
        "writable": [str(scratch), "/dev/null"],
        "threads_base": _threads_of_user() if uid is None else 0,
    }
    environment = ENVIRONMENT | {"HOME": str(scratch), "TMPDIR": str(scratch)}
    if runtime.shared:
        environment["LD_LIBRARY_PATH"] = str(runtime.shared.parent)
    command = [str(runtime.executable), *start("zygote", str(INSIDE.parent)), _CONTROL]
    return _spawn("bare", command, environment, config | inside, scratch)


def _check_devices(user: int | None = None) -> None:
    """Raise JailError if a program could leave something in a device of the machine, which all jails share.

    Args:
        user: the programs' user, if the jail does not keep the owner of a device from changing its mode.
    """
    for name, number in DEVICES.items():
        found = Path(name).stat()
        if not stat.S_ISCHR(found.st_mode) or found.st_rdev != number:
            raise JailError(f"{name} is not the device of that name, and programs would see what others write to it")
        if found.st_uid == user:
            raise JailError(
                f"{name} belongs to the user of the programs, who could leave signs for each other in its mode; "
                f"give it back to root: chown root:root {name}"
            )


def _environment() -> dict[str, str]:
    return ENVIRONMENT | ({"LD_LIBRARY_PATH": f"{HOME}/lib"} if find_runtime().shared else {})


def _enclosed(uid: int | None, config: dict[str, Any]) -> dict[str, Any]:
    stdlib = f"{HOME}/lib/{VERSION}"
    path = [stdlib, f"{stdlib}/lib-dynload", *([PACKAGES] if config["packages"] else [])]
    own = {"path": path, "scratch": SCRATCH, "uid": uid, "readable": None, "writable": [], "threads_base": 0}
    return own | _filters(config, "program")


def _filters(config: dict[str, Any], program: str) -> dict[str, str]:
    known = config["filters"]
    return {"filter": known.get("fork_server", ""), "program_filter": known.get(program, "")}


def _file_system(config: dict[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    runtime = find_runtime()
    binds = {
        f"{HOME}/bin/python3": str(runtime.executable),
        f"{HOME}/lib/{VERSION}": str(runtime.stdlib),
        f"{HOME}/inside": str(INSIDE),
        **{str(place): str(place) for place in (*runtime.libraries, *data_files())},
        **{f"{PACKAGES}/{Path(package).name}": package for package in config["packages"]},
    }
    if runtime.shared:
        binds[f"{HOME}/lib/{runtime.shared.name}"] = str(runtime.shared)
    links = {}
    for name in ("/lib", "/lib64"):
        if Path(name).is_symlink():
            links[name] = str(Path(name).readlink())
    return binds | {name: name for name in DEVICES}, links


_THREADS_STEP = 512


def _threads_of_user() -> int:
    """Return how many threads this user has: without namespaces RLIMIT_NPROC counts them all.

    Rounded up far: programs can read the limit, which shall not tell what else the user runs.
    """
    count = 0
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and process.stat().st_uid == os.getuid():
                count += sum(1 for _ in (process / "task").iterdir())
        except OSError:
            continue  # it has ended
    return -(-count // _THREADS_STEP) * _THREADS_STEP


LEVELS = ("namespaces", "seccomp", "rlimits")  # strongest first
STARTERS: dict[str, Callable[[int, dict[str, Any]], Worker]] = {
    "bwrap": start_bwrap,
    "unshare": start_unshare,
    "bare": start_bare,
    "docker": start_docker,
}
PROCESS_JAILS = ("bwrap", "unshare", "bare")


def start_worker(kind: str, slot: int, config: dict[str, Any], flavour: str = "lean", name: str = "lean") -> Worker:
    """Start a jail of ``kind`` for ``slot`` and return its worker.

    Args:
        kind: a key of `STARTERS`.
        slot: number of the slot.
        config: ``limits``, ``filters``, ``packages`` (`packages.Packages` as a dict), ``run_folder``,
            ``min_isolation``, ``user`` (the user of programs if this process is root), and the jail's own keys.
        flavour: ``lean``, or ``packages`` for programs that may import a package.
        name: of the jail among those of its slot.

    Raises:
        JailError: the jail does not start on this machine, or is weaker than ``min_isolation``.
    """
    known = Packages(**config["packages"])
    own: dict[str, Any] = {"flavour": flavour, "name": name, "preload": (), "extra_mb": 0, "packages": ()}
    own |= {"wanted": known.names, "importable": known.modules}
    if flavour == "packages":
        own |= {"preload": known.preload, "extra_mb": known.extra_mb, "packages": known.places}
    worker = STARTERS[kind](slot, config | own)
    worker.again = lambda: start_worker(kind, slot, config, flavour, name)
    level = worker.facts["isolation"] = level_of(worker.facts)
    if LEVELS.index(level) > LEVELS.index(config["min_isolation"]):
        worker.close()
        missing = ", ".join(name for name, closed in worker.facts.items() if closed is False)
        raise JailError(
            f"reaches isolation level {level!r}, and min_isolation is {config['min_isolation']!r} (not: {missing})"
        )
    return worker


def level_of(facts: dict[str, Any]) -> str:
    """Return the isolation level that follows from the findings of the first child."""
    if not all(facts[name] for name in ("no_processes", "no_signals", "no_network", "no_files")):
        return "rlimits"
    return "namespaces" if facts["pid"] == 1 else "seccomp"
