"""The fork server inside a jail: one forked child per program.

Promises: it never sees a program or a test.  A confined child waits on a channel of its own; the other end of the
channel is passed to the judge, who sends the job directly to the child.  (A jail with its own kernel cannot pass a
descriptor out; there the child connects to a socket of the judge, ``meet`` in the configuration.)

Commands of the judge: ``next`` kills the child, reports its usage and offers a new child; ``gone`` does the same for a
child that closed its channel and may be dead already; ``poll`` reports the child's usage so far; ``late`` interrupts
it; limits, as a JSON object, replace the waiting child by one with these limits.  When the judge closes the connection,
this process ends, and with it everything in the jail.

A program's child is offered only if no earlier one has left a trace in the jail, such as a file or a gap in the process
numbers.  Else the answer is ``used``, and the judge must replace the jail.  (Tests are trusted: between two of them the
scratch folder is emptied.)

Started by `runtime.start` with the number of the descriptor of the control socket (SOCK_SEQPACKET), or the path of that
socket; the first message is the configuration.
"""

from __future__ import annotations

import _socket as socket  # smaller than the module socket, which every fork would copy
import gc
import json
import os
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

from . import child, confine, folders, messages
from .messages import CHANNEL

PRELOAD = (
    *("bisect", "collections", "copy", "functools", "heapq", "itertools", "math", "operator", "random", "re", "string"),
    "typing",
)
_SIGKILL, _SIGPROF = 9, 27
_LONGEST_COMMAND = 900  # bytes; for more than a KiB malloc would tidy up memory, and thus copy pages after each fork
_NO_ROOM = "the sandbox's folders are on a file system without room for {} MiB in {} files; let TMPDIR name another"
_EXIT_GRACE_S = 0.05  # an ending process closes its channel a moment before it can be waited for


class ForkServer:
    """A fork server: its configuration and the waiting child.

    Args:
        control: to the judge.
        config: ``scratch``, the folder of the children; ``limits`` of a child that gets no others; and ``meet``, if
            children connect to the judge themselves.
        run: what a child does with its limits.
        check: raises ValueError or OSError if this machine does not give a program what the limits promise; None if
            children are not programs.
    """

    def __init__(
        self,
        control: socket.socket,
        config: dict[str, Any],
        run: Callable[[dict[str, Any]], None],
        check: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.control = control
        self.scratch = config["scratch"]
        self.alone = os.getpid() == 1  # the kernel ends all children with process 1
        self.meet = config.get("meet")
        self.usual: dict[str, Any] = config["limits"]
        self.run, self.check = run, check
        self.pid = 0
        self.untouched = folders.facts(self.scratch)
        self.crowded = not os.path.ismount(self.scratch)  # others can fill its file system

    def offer(self, limits: dict[str, Any] | None = None) -> None:
        """Fork a child with ``limits`` (None: the usual ones) and pass its channel to the judge."""
        if self.check is not None and folders.facts(self.scratch) != self.untouched:
            self.control.send(b"used")
            return
        try:
            if self.check is not None:
                self.check(limits or self.usual)
            if self._is_full():
                raise OSError(_NO_ROOM.format(self.usual["file_mb"], folders.MOST_ENTRIES))
        except (ValueError, OSError) as error:
            self.control.send(b"refused " + str(error).encode())
            return
        expected = self.pid + 1
        if self.meet is not None:
            channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            channel.connect(self.meet)
            self._fork(channel, limits)
            channel.close()
            self.control.send(b"child")
            return
        ours, theirs = socket.socketpair()
        self._fork(theirs, limits)
        theirs.close()
        if self.alone and self.check is not None and self.pid != expected:  # the last child's threads had those between
            ours.close()
            self.control.send(b"used")
            return
        descriptor = struct.pack("@i", ours.fileno())
        self.control.sendmsg([b"child"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptor)])
        ours.close()

    def probe(self) -> dict[str, bool]:
        """Have the first child of a program's jail try forbidden operations; return which of them failed."""
        ours, theirs = socket.socketpair()
        self._fork(theirs, None)
        theirs.close()
        request = messages.write_request("probe", os.getppid() or 1)
        ours.send(messages.framed(request))
        answer = b""
        while part := ours.recv(1 << 16):
            answer += part
        ours.close()
        self.reap()
        return dict(messages.read_reply(answer[4:])[2])

    def serve(self) -> None:
        """Execute the judge's commands until it closes the connection."""
        while True:
            command = self.control.recv(_LONGEST_COMMAND)
            if command == b"poll":
                self.control.send(self._poll())
            elif command in (b"next", b"gone"):
                self.control.send(self.reap(_EXIT_GRACE_S if command == b"gone" else 0.0))
                if self.check is None:
                    try:
                        folders.wipe(self.scratch)
                        folders.restore(self.scratch, self.untouched[0])
                    except OSError:
                        self.control.send(b"spoilt")
                        return
                self.offer()
            elif command == b"late":
                self.interrupt()
            elif command.startswith(b"{"):
                self.reap()
                self.offer(json.loads(command))
            else:
                return

    def _fork(self, channel: socket.socket, limits: dict[str, Any] | None) -> None:
        parent = os.getpid()
        redirect_to_dev_null()  # for the child; before the fork it copies no pages
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.dup2(channel.fileno(), CHANNEL)
                os.closerange(CHANNEL + 1, 64)
                if not self.alone:
                    confine.die_with_parent()
                if self.alone or os.getppid() == parent:
                    self.run(limits or self.usual)
            finally:
                os._exit(70)

    def interrupt(self) -> None:
        """Tell the child that its time is over."""
        os.kill(self.pid, _SIGPROF)

    def _poll(self) -> bytes:
        try:
            cpu = time.clock_gettime((~self.pid << 3) | 2)  # the CPU clock of another process
        except OSError:
            cpu = -1.0  # it has ended
        used = folders.facts(self.scratch) != self.untouched
        content = folders.content(self.scratch)
        if not used:
            self.untouched = folders.facts(self.scratch)  # reading a folder changes its access time
        return struct.pack("=did", cpu, *content)

    def reap(self, patience_s: float = 0.0) -> bytes:
        """End the child after giving it ``patience_s`` to end by itself.

        Returns:
            Its wait status, whether it had to be killed, whether others had filled the file system of its folder, its
            CPU seconds and peak resident KiB.
        """
        end = time.monotonic() + patience_s
        pid = 0
        while pid == 0 and time.monotonic() < end:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid == 0:
                time.sleep(0.001)
        if pid == 0:
            os.kill(self.pid, _SIGKILL)  # it has not been waited for, so the pid is still its own
            _, status, usage = os.wait4(self.pid, 0)
        forced = pid == 0 and status & 0x7F == _SIGKILL  # with any other status it was already ending
        full = self._is_full()
        return struct.pack("=iiidd", status, forced, full, usage.ru_utime + usage.ru_stime, usage.ru_maxrss)

    def _is_full(self) -> bool:
        """Return whether others have left the child less room than the limits promise."""
        if not self.crowded:
            return False
        entries, megabytes = folders.MOST_ENTRIES, self.usual["file_mb"]
        if folders.facts(self.scratch) != self.untouched:  # listing an empty folder would leave a trace
            own = folders.content(self.scratch)
            entries, megabytes = entries - own[0], megabytes - own[1]
        return not folders.has_room(self.scratch, entries, megabytes)


def program_runner(config: dict[str, Any]) -> tuple[Callable[[dict[str, Any]], None], Callable[[dict[str, Any]], None]]:
    """Return what a child of a program's jail does: it confines itself and serves one program; and its check."""
    filter_program = confine.prepare_filter(bytes.fromhex(config["program_filter"])) if config["filter"] else None
    usual = config["limits"]

    def resources(limits: dict[str, Any]) -> list[tuple[int, tuple[int, int]]]:
        own = {
            "processes": limits["processes"] + config["threads_base"],
            "memory_mb": limits["memory_mb"] + config["extra_mb"],
        }
        return confine.resource_limits({**limits, **own})

    usual_resources = resources(usual)  # computed once, before the forks

    def run(limits: dict[str, Any]) -> None:
        own = os.getpid()
        try:
            # Before the filter, which forbids setting limits.
            confine.limit_resources(usual_resources if limits is usual else resources(limits))
            if filter_program is not None:
                filter_program()
        except BaseException:
            os.kill(own, _SIGKILL)  # not the program's fault: it has not begun, and cannot end like this
        gc.enable()
        child.serve(limits, confine.probe)

    def check(limits: dict[str, Any]) -> None:
        if limits is not usual:
            resources(limits)

    return run, check


def preload(names: list[str]) -> None:
    """Import modules that programs often use."""
    # Without hooks for forks: random would seed itself in every child, which gets the job's seed anyway.
    register, os.register_at_fork = os.register_at_fork, lambda **hooks: None
    for name in (*PRELOAD, *names):
        __import__(name)
    os.register_at_fork = register


def redirect_to_dev_null() -> None:
    """Open /dev/null anew for the first three descriptors.

    Locks and flags of an open file that all programs share would outlive the program that set them.
    """
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)


def move_packages(stdlib: str) -> None:
    """Let loaded packages find their modules and files in ``stdlib``, which programs can read."""
    before = os.__file__.rpartition("/")[0]

    def moved(place: Any) -> Any:
        inside = isinstance(place, str) and place.startswith(before + "/")
        return stdlib + place.removeprefix(before) if inside else place

    for module in list(sys.modules.values()):
        if hasattr(module, "__path__"):
            module.__path__ = [moved(place) for place in module.__path__]
        if hasattr(module, "__file__"):
            module.__file__ = moved(module.__file__)
        loader: Any = getattr(module, "__loader__", None)
        if hasattr(loader, "path"):
            loader.path = moved(loader.path)


def confine_self(config: dict[str, Any]) -> None:
    """Drop the rights that neither the fork server nor any program needs."""
    os.chdir(config["scratch"])
    redirect_to_dev_null()
    if config["uid"] is not None:
        confine.become(config["uid"])
    elif os.geteuid() == 0:
        confine.drop_capabilities()
    confine.die_with_parent()
    confine.hide_memory()
    confine.forbid_new_privileges()
    if config["readable"] is not None and confine.landlock_version():
        confine.confine_files(config["readable"], config["writable"])
    confine.forbid_persistent_resources()
    if config["filter"]:
        confine.prepare_filter(bytes.fromhex(config["filter"]))()


def open_control(where: str) -> socket.socket:
    """Return the control socket, given the number of a descriptor or the path of a socket."""
    if where.isdigit():
        return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, int(where))
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control.connect(where)
    return control


def main() -> None:
    """Read the configuration, drop rights, serve."""
    control = open_control(sys.argv[1])
    config = json.loads(control.recv(1 << 18))
    if config["path"]:
        move_packages(config["path"][0])
    sys.path[:] = config["path"] or [*sys.path, *config["packages"]]
    try:
        preload(config["preload"])
        confine_self(config)
        gc.collect()
        gc.disable()
        gc.freeze()
        zygote = ForkServer(control, config, *program_runner(config))
        facts: dict[str, Any] = {"python": sys.version.split()[0], "pid": os.getpid(), **zygote.probe()}
        child.configure()
        control.send(json.dumps(facts).encode())
    except Exception as error:
        control.send(json.dumps({"error": type(error).__name__ + ": " + str(error)}).encode())
        return
    zygote.offer()
    try:
        zygote.serve()
    finally:
        zygote.reap()
