"""The client of a jail's fork server.

Promises: `take` returns the channel of a new, confined child; `finish` ends that child and returns its use of
resources.  Every failure in between raises `WorkerDied`; after it the worker cannot be used again, and `close` removes
all of it.
"""

from __future__ import annotations

import json
import marshal
import os
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pipeline_lib.sandbox import wire
from pipeline_lib.sandbox.inside import folders

_PATIENCE_S = 20.0  # a fork server that does not answer for longer counts as dead


class WorkerDied(Exception):
    """The jail, its fork server or the program's process was killed, or does not answer; no program can do that."""


class JailError(Exception):
    """A jail could not be started."""


class NoPackages(JailError):
    """A jail does not have the requested packages, and never will."""


@dataclass(frozen=True, slots=True)
class Usage:
    """How a child ended: ``signal`` (0 if it exited), whether the fork server sent it, exit code, usage.

    CPU in seconds, peak resident memory in MiB.
    """

    signal: int
    forced: bool
    exit_code: int
    cpu_s: float
    peak_mb: float


@dataclass(frozen=True, slots=True)
class Load:
    """The current usage of a child: CPU seconds so far, entries and MiB in its scratch folder."""

    cpu_s: float
    entries: int
    scratch_mb: float


class Jail(Protocol):
    """A started jail.

    ``name`` is its kind, ``host_pid`` the process id of its outermost process on this machine.
    """

    name: str

    @property
    def host_pid(self) -> int:
        """Return the outermost process; 0 if it is not visible."""
        ...

    def kill(self) -> str:
        """End everything in the jail and free its resources; return its error text; a second call does nothing."""
        ...


class ProgramWorker:
    """The program's worker as the process of the tests sees it: the judge holds it, and is asked for everything.

    Attributes:
        modules: modules that programs may import besides the standard library.
    """

    def __init__(self, judge: socket.socket, modules: Sequence[str]) -> None:
        self.modules = modules
        self._judge = judge
        self._buffer = bytearray()
        self._descriptors: list[int] = []
        self._lock = threading.Lock()  # tests may call from threads
        self._key = b""
        self._sent = self._asked = 0
        self._pid = os.getpid()

    def next_job(self) -> bytes | None:
        """Return the next job, packed; None when the judge is gone."""
        message = self._receive()
        if message is None:
            return None
        self._key, body = message
        self._sent = 0
        return bytes(body)

    def take(self) -> socket.socket:
        """Return the channel of a new process of the program."""
        if not self._descriptors:
            self._ask("take")
        return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, self._descriptors.pop(0))

    def load(self) -> Load:
        """Return the current usage of the program's process."""
        return Load(*self._ask("load"))

    def finish(self, gone: bool = False) -> Usage:
        """End the program's process; return how it ended."""
        return Usage(*self._ask("finish", gone))

    def waited(self) -> float | None:
        """Return the seconds in which the program's process waited for a processor."""
        (seconds,) = self._ask("waited")
        return None if seconds is None else float(seconds)

    def killed(self) -> None:
        """Say that the program's process was killed from outside; this process then ends."""
        self._ask("killed")

    def report(self, *message: Any) -> None:
        """Send what came of a job; a process that the tests have forked sends nothing."""
        if os.getpid() == self._pid:
            self._send(*message)

    def _ask(self, command: str, *values: Any) -> Any:
        with self._lock:
            self._asked += 1
            self._send(command, self._asked, *values)
            while True:
                answer = self._receive()
                if answer is None:
                    os._exit(1)  # the judge is gone
                number, *found = answer
                if number == self._asked:  # others are answers to questions that an alarm has interrupted
                    return found

    def _send(self, *message: Any) -> None:
        number, self._sent = self._sent, self._sent + 1
        self._judge.sendall(wire.seal(self._key, number, message))

    def _receive(self) -> Any:
        while True:
            frame = wire.take_value(self._buffer)
            if frame is not None:
                return marshal.loads(frame)
            data, descriptors, _, _ = socket.recv_fds(self._judge, 1 << 16, 1)
            if not data:
                return None
            self._descriptors += descriptors
            self._buffer += data


class Worker:
    """Talks to the fork server in a jail over its control socket.

    Args:
        jail: the jail.
        control: the control socket.
        config: the fork server's configuration.
        meeting: listening socket for children's channels, if the jail cannot pass them through the control socket.

    Attributes:
        modules: modules that programs may import besides the standard library.
        again: starts such a worker in a new jail; set by `jails.start_worker`.
    """

    again: Callable[[], Worker]

    def __init__(
        self, jail: Jail, control: socket.socket, config: dict[str, Any], meeting: socket.socket | None = None
    ) -> None:
        self.jail = jail
        self.control = control
        self.meeting = meeting
        self.jobs = 0
        self._next: socket.socket | None = None
        self.usual_limits = config["limits"]  # of jobs without limits of their own
        self.modules: Sequence[str] = config["importable"]
        control.settimeout(_PATIENCE_S)
        if meeting is not None:
            meeting.settimeout(_PATIENCE_S)
        try:
            control.send(json.dumps(config).encode())
            answer = control.recv(1 << 16)
        except OSError as error:
            raise JailError(f"the jail {jail.name} did not start: {error}") from error
        if not answer:
            raise JailError(f"the jail {jail.name} ended while starting")
        self.facts: dict[str, object] = json.loads(answer)
        if "error" in self.facts:
            raise JailError(f"the jail {jail.name} did not start: {self.facts['error']}")

    def take(self, limits: dict[str, object] | None = None) -> socket.socket:
        """Return the channel of the waiting child, or of a new one with ``limits``.

        Raises:
            WorkerDied: the fork server is gone.
            JailError: this machine does not give a program what it is promised.
        """
        self.settle()
        if limits is not None:
            self._received().close()
            try:
                self.control.send(json.dumps(limits).encode())
            except OSError as error:
                raise WorkerDied(f"the fork server ended: {error}") from error
            self.settle()
        channel = self._received()
        self.jobs += 1
        return channel

    @property
    def settled(self) -> bool:
        """Return whether the next child has been received."""
        return self._next is not None

    def settle(self) -> None:
        """Receive the next child, from a new jail if the last program has left something in this one.

        Raises:
            WorkerDied, JailError: as `take`.
        """
        if self._next is None:
            self._next = self._offered()

    def _received(self) -> socket.socket:
        assert self._next is not None
        channel, self._next = self._next, None
        return channel

    def _offered(self) -> socket.socket:
        try:
            message, descriptors, _, _ = socket.recv_fds(self.control, 1 << 10, 1)
        except OSError as error:
            raise WorkerDied(f"no child came: {error}") from error
        if message == b"child" and self.meeting is not None:
            try:
                channel, _ = self.meeting.accept()
            except OSError as error:
                raise WorkerDied(f"no child came: {error}") from error
            return channel
        if message == b"spoilt":
            raise WorkerDied("the folder of the tests could not be emptied")
        if message == b"used":
            self._renew()
            return self._offered()
        if message.startswith(b"refused "):
            self.close()  # nothing else comes
            raise JailError(message.partition(b" ")[2].decode())
        if message != b"child" or len(descriptors) != 1:
            for number in descriptors:
                os.close(number)
            raise WorkerDied("the fork server ended")
        return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, descriptors[0])  # else the kernel is asked

    def _renew(self) -> None:
        """Replace the jail: its program has left something in it that a later one could see."""
        self.close()
        fresh = self.again()
        self.jail, self.control, self.meeting = fresh.jail, fresh.control, fresh.meeting

    def load(self) -> Load:
        """Return the child's current usage."""
        cpu_s, entries, scratch_mb = self._ask(b"poll", "=did")
        return Load(cpu_s=cpu_s, entries=entries, scratch_mb=scratch_mb)

    def finish(self, gone: bool = False) -> Usage:
        """End the child and fork the next one; return how the child ended.

        Args:
            gone: it closed its channel, so it may have ended by itself.

        Raises:
            WorkerDied: the fork server is gone.
            JailError: the child's folder did not have the room that it is promised.
        """
        status, forced, full, cpu_s, peak_kb = self._ask(b"gone" if gone else b"next", "=iiidd")
        if full:
            self.close()
            raise JailError("others filled the file system of the sandbox's folders; let TMPDIR name another")
        ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0
        return Usage(signal=ended_by, forced=bool(forced), exit_code=code, cpu_s=cpu_s, peak_mb=peak_kb / 1024)

    def interrupt(self) -> None:
        """Tell the child that its time is over."""
        try:
            self.control.send(b"late")
        except OSError as error:
            raise WorkerDied(f"the fork server ended: {error}") from error

    def close(self) -> None:
        """End the jail."""
        self.control.close()
        if self.meeting is not None:
            self.meeting.close()
        self.jail.kill()

    def _ask(self, command: bytes, layout: str) -> tuple[Any, ...]:
        try:
            self.control.send(command)
            return struct.unpack(layout, self.control.recv(64))
        except (OSError, struct.error) as error:
            raise WorkerDied(f"the fork server does not answer: {error}") from error


@dataclass(slots=True)
class ProcessJail:
    """A jail that is a child process of this one."""

    name: str  #: kind of the jail
    process: subprocess.Popen[bytes]  #: its outermost process; its standard error is used in error messages
    scratch: Path | None = None  #: its scratch folder on this machine, if it has one

    @property
    def host_pid(self) -> int:
        """Return the process that was started."""
        return self.process.pid

    def kill(self) -> str:
        """End the process, wait for it, remove the scratch folder; return its standard error."""
        if self.process.stderr is None or self.process.stderr.closed:
            return ""
        try:
            self.process.wait(timeout=1)  # it ends when the control socket is closed
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        with suppress(OSError):  # a bwrap that is killed while it starts leaves its child, which waits for it
            os.killpg(self.process.pid, signal.SIGKILL)
        os.set_blocking(self.process.stderr.fileno(), False)
        text = (self.process.stderr.read(2000) or b"").decode(errors="replace")
        self.process.stderr.close()
        if self.scratch is not None:
            with suppress(OSError):
                folders.wipe(str(self.scratch))
                self.scratch.rmdir()
        return text.strip()
