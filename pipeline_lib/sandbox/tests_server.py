"""The fork server of tests, and the process in which the tests of a job run.

The fork server is a process of the judge's that sees only a folder of its own and the installed packages.  Promises:
tests, and what a program's values make of them, cannot open any other file of this machine, nor see the environment of
the process that uses the sandbox.  Where namespaces are allowed, they also have no network and no processes of others.

Its child has two descriptors, the channels to the judge and to the program.  It gets jobs from the judge, and asks it
for all that concerns the program's process: starting it again, its usage, its end.  What it sends is sealed.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pipeline_lib.sandbox import wire
from pipeline_lib.sandbox.inside import confine
from pipeline_lib.sandbox.inside.messages import CHANNEL
from pipeline_lib.sandbox.inside.zygote import ForkServer, move_packages, redirect_to_dev_null
from pipeline_lib.sandbox.jobs import Limits
from pipeline_lib.sandbox.packages import Packages
from pipeline_lib.sandbox.runner import run_plan
from pipeline_lib.sandbox.runtime import (
    ENVIRONMENT,
    SCRATCH,
    check_entry,
    data_files,
    find_runtime,
    own_place,
    readable_copy,
)
from pipeline_lib.sandbox.time_limits import address_space
from pipeline_lib.sandbox.worker import JailError, ProgramWorker, Worker


def serve(limits: dict[str, Any], modules: Sequence[str], space: int) -> None:
    """Run the tests of jobs that come from the judge, until it closes the channel.

    Args:
        limits: of all these jobs, as a dict of `jobs.Limits`.
        modules: see `worker.ProgramWorker`.
        space: bytes of address space that tests may have.
    """
    gc.enable()
    worker = ProgramWorker(socket.socket(fileno=CHANNEL), modules)
    own = Limits(**limits)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    while (body := worker.next_job()) is not None:
        planned = wire.unpack_job(body)
        resource.setrlimit(resource.RLIMIT_AS, (space, most))
        try:
            outcome = run_plan(planned, own, worker)
        except BaseException:
            worker.report("fault", traceback.format_exc())
            return
        finally:
            _, left = resource.getrlimit(resource.RLIMIT_AS)  # the tests may have lowered it
            resource.setrlimit(resource.RLIMIT_AS, (left, left))  # for the report
        worker.report("done", outcome.cases, outcome.events)


_CONTROL = 3
_END_S = 1.0
_ROOM_MB = 256  # address space of what tests import


def start_tests(slot: int, config: dict[str, Any], flavour: str, bare: bool) -> Worker:
    """Start the fork server of tests of a slot.

    Args:
        slot: number of the slot.
        config: as for `jails.start_worker`; ``tests_user`` is the user of tests if this process is root, and ``path``
            the folders of modules.
        flavour: ``lean``, or ``packages`` with the packages that programs may import.
        bare: without namespaces, as the program.

    Raises:
        JailError: this machine cannot confine them as ``min_isolation`` demands, or give them what they are promised.
    """
    _check_hard_limits(_space(address_space(), config["limits"]))
    reasons = []
    for kind in ("landlock",) if bare else ("namespaces", "landlock"):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            try:
                _serve(theirs, kind, slot, config, flavour)
            finally:
                os._exit(1)
        theirs.close()
        jail = _Forked(f"tests in {kind}", pid)
        try:
            worker = Worker(jail, ours, config | {"importable": ()})
        except JailError as error:
            ours.close()
            jail.kill()
            reasons.append(f"{kind}: {error}")
            continue
        if worker.facts["confined"] or config["min_isolation"] == "rlimits":
            return worker
        worker.close()
        reasons.append("the kernel has no Landlock")
    raise JailError(f"the tests cannot be confined: {'; '.join(reasons)}")


@dataclass(slots=True)
class _Forked:
    """A forked process as a jail."""

    name: str
    host_pid: int
    _ended: bool = False

    def kill(self) -> str:
        end = time.monotonic() + _END_S
        while not self._ended:
            self._ended = os.waitpid(self.host_pid, os.WNOHANG)[0] != 0  # it ends when the control socket is closed
            if not self._ended and time.monotonic() > end:
                os.kill(self.host_pid, signal.SIGKILL)
            time.sleep(0.002)
        return ""


def _space(before: int, limits: dict[str, Any]) -> int:
    """Return the bytes of address space of tests, in a process that has ``before`` bytes."""
    return before + (limits["memory_mb"] + _ROOM_MB << 20)


def _check_hard_limits(space: int) -> None:
    """Raise JailError if this process cannot have ``space`` bytes of address space."""
    for name in ("AS", "DATA"):
        _, most = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))
        if 0 <= most < space:
            raise JailError(
                f"the hard limit RLIMIT_{name} is {most}, but tests are promised {space}; "
                "raise it (ulimit -H), or lower the sandbox's limits"
            )


class _Server(ForkServer):
    """Ends with a child also the processes that it has started, in whatever session they are.

    Args:
        orphans: the kernel's list of this process's children, opened where they become its own when their parent ends;
            None where this is process 1, or where they do not.
        space: returns the bytes of address space that tests may have, given the limits of their job.
        more: as of `ForkServer`.
    """

    def __init__(self, orphans: int | None, space: Callable[[dict[str, Any]], int], *more: Any) -> None:
        super().__init__(*more)
        self._orphans, self._space = orphans, space

    def offer(self, limits: dict[str, Any] | None = None) -> None:
        """Fork a child, unless this machine does not give it what ``limits`` promise; see `ForkServer.offer`."""
        try:
            _check_hard_limits(self._space(limits or self.usual))
        except JailError as error:
            self.control.send(b"refused " + str(error).encode())
            return
        super().offer(limits)

    def reap(self, patience_s: float = 0.0) -> bytes:
        """End the child; see `ForkServer.reap`."""
        usage = super().reap(patience_s)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while True:
                with suppress(ProcessLookupError):
                    if self.alone:
                        os.kill(-1, signal.SIGKILL)
                    elif self._orphans is not None:
                        for pid in os.pread(self._orphans, 1 << 12, 0).split():
                            os.kill(int(pid), signal.SIGKILL)
                os.waitpid(-1, 0)
        return usage


def _adopt_orphans() -> int | None:
    """Become the parent of all descendants whose parents end; return the open list of children, None without one."""
    try:
        children = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY)
    except OSError:
        return None
    confine.adopt_orphans()
    return children


def _serve(control: socket.socket, kind: str, slot: int, config: dict[str, Any], flavour: str) -> None:
    gc.freeze()  # collecting the judge's sockets here would close descriptors that have been reused
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.dup2(control.fileno(), _CONTROL)
    os.closerange(_CONTROL + 1, 4096)
    control = socket.socket(fileno=_CONTROL)
    control.recv(1 << 18)
    try:
        space = partial(_space, address_space())
        known = Packages(**config["packages"])
        if flavour == "packages":
            for name in known.preload:
                with suppress(ImportError):
                    importlib.import_module(name)
        orphans = _adopt_orphans() if kind == "landlock" else None
        confined = _confine(kind, slot, config, flavour)
        redirect_to_dev_null()
        gc.collect()
        gc.disable()
        gc.freeze()
        if config["filters"]:  # "tests" would name a package of the project, see `identity.syntax`
            _filter(config, "tests_process")()
        installs = []
        if kind == "landlock" and config["filters"]:
            scoped = confine.landlock_version() >= 6
            installs = [confine.confine_signals] if scoped else [_filter(config, "tests_without_signals")]
            installs += [_filter(config, "tests_among_files")]

        def run(limits: dict[str, Any]) -> None:
            os.setpgid(0, 0)
            for install in installs:
                install()
            serve(limits, known.modules, space(limits))

        server = _Server(orphans, space, control, {"scratch": str(Path.cwd()), "limits": config["limits"]}, run)
        control.send(json.dumps({"confined": confined}).encode())
    except Exception as error:
        control.send(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
        return
    server.offer()
    try:
        server.serve()
    finally:
        server.reap()


def _filter(config: dict[str, Any], name: str) -> Callable[[], None]:
    return confine.prepare_filter(bytes.fromhex(config["filters"][name]))


def _confine(kind: str, slot: int, config: dict[str, Any], flavour: str) -> bool:
    """Give up all files but the tests' own folder and the modules; return whether the kernel enforces it."""
    runtime, user = find_runtime(), config["tests_user"]
    root = os.geteuid() == 0
    stdlib = runtime.stdlib
    packages = [place for place in map(Path, config["path"]) if {"site-packages", "dist-packages"} & {*place.parts}]
    packages = [place for place in packages if place.is_dir()]
    if kind == "namespaces":
        folder = Path(SCRATCH)
        places = [stdlib, *packages, *runtime.libraries, *data_files()]
        links = {name: str(Path(name).readlink()) for name in ("/lib", "/lib64") if Path(name).is_symlink()}
        binds = [*dict.fromkeys(map(str, places)), "/dev/null", "/dev/urandom"]
        plan = {"uid": user, "user": not root, "binds": {place: place for place in binds}, "links": links}
        confine.enter(plan | {"scratch": SCRATCH, "scratch_mb": config["limits"]["file_mb"]}, _CONTROL)
    else:
        folder = own_place(Path(config["run_folder"]), f"tests-{flavour}") / "scratch"
        if root:
            check_entry(folder.parent)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        if root:
            stdlib = readable_copy(stdlib, Path(config["run_folder"]))
            os.chown(folder, user, user)
    os.chdir(folder)
    os.environ.clear()
    os.environ |= ENVIRONMENT | {"HOME": str(folder), "TMPDIR": str(folder)}
    time.tzset()
    tempfile.tempdir = None
    move_packages(str(stdlib))
    sys.path[:] = [str(stdlib), f"{stdlib}/lib-dynload", *map(str, packages)]
    if root:
        confine.become(user)
    confine.die_with_parent()
    confine.hide_memory()
    confine.forbid_new_privileges()
    if kind == "namespaces":
        return True
    if confine.landlock_version():
        readable = [stdlib, *packages, *runtime.libraries, *data_files(), "/dev/urandom"]
        confine.confine_files([*map(str, readable)], [str(folder), "/dev/null"])
    return confine.landlock_version() > 0
