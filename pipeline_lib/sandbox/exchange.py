"""The channel to a program's process: a frame is sent, and one is received within the time limit or not at all.

Promises: a malformed, large, late or missing reply only raises `NoAnswer`.  Time is measured by the program's own CPU
clock; the wall clock is a second limit.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
from typing import Any

from pipeline_lib.sandbox.calls import NoAnswer
from pipeline_lib.sandbox.inside import messages
from pipeline_lib.sandbox.inside.values import BadValue
from pipeline_lib.sandbox.jobs import Limits
from pipeline_lib.sandbox.time_limits import Clocks, Watch
from pipeline_lib.sandbox.worker import ProgramWorker, Usage

_FRAME_SLACK = 1 << 16  # bytes of a reply in addition to the value, or without one
CALLED_IN_FORK = "a process that the tests have forked called the program, which only they themselves can do"
_OOM_SHARE = 0.8  # of the memory limit: a process killed above it counts as out of memory


class Exchange:
    """The processes that a program has one after the other, and the exchange of frames with them.

    Attributes:
        events: what went wrong so far, as ``(kind, text)``; kinds are the statuses of a verdict.
        clocks: the time that the program has used.
        peak_mb: peak memory of all ended processes, MiB.
    """

    def __init__(self, limits: Limits, worker: ProgramWorker) -> None:
        self.limits = limits
        self.worker = worker
        self.events: list[tuple[str, str]] = []
        self.clocks = Clocks(limits, worker)
        self.peak_mb = 0.0
        self._process = os.getpid()
        self._forked = mmap.mmap(-1, 1)  # shared with processes that the tests fork
        self._channel: Any = None
        self._poll = select.poll()
        self._buffer = bytearray()

    @property
    def alive(self) -> bool:
        """Return whether there is a running process."""
        return self._channel is not None

    @property
    def in_fork(self) -> bool:
        """Return whether this is a process that the tests have forked."""
        return os.getpid() != self._process

    @property
    def called_in_fork(self) -> bool:
        """Return whether such a process has tried to call the program."""
        return self._forked[0] != 0

    def refuse_in_fork(self) -> None:
        """Raise `NoAnswer` in a process that the tests have forked: it would take the answers to their other calls."""
        if self.in_fork:
            self._forked[0] = 1
            raise NoAnswer("error", CALLED_IN_FORK)

    def begin(self) -> None:
        """Take a new process from the worker."""
        self._channel = self.worker.take()
        self._channel.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._channel, select.POLLIN)
        self._buffer.clear()
        self.clocks.begin()

    def end(self, gone: bool = False) -> Usage | None:
        """End the process, if there is one, and add up its usage; ``gone`` if it closed its channel."""
        if self._channel is None:
            return None
        self._channel.close()
        self._channel = None
        usage = self.worker.finish(gone)
        self.clocks.cpu_s += usage.cpu_s
        self.peak_mb = max(self.peak_mb, usage.peak_mb)
        return usage

    def leave(self) -> None:
        """Close the channel for good; the judge ends the process and knows its usage."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def exchange(self, request: bytes) -> list[Any]:
        """Send ``request``, any number of frames, and return the program's next reply.

        Args:
            request: made by `messages.framed`.

        Raises:
            NoAnswer: there is none; the process has ended.
        """
        self.refuse_in_fork()
        if not request and (frame := self._frame()) is not None:
            return self._parse(frame)  # it has already arrived
        watch = Watch(self.clocks, self.limits.call_cpu_s)  # the tests' own time is not the program's
        try:
            return self._wait(memoryview(request), watch)
        finally:
            watch.end()

    def failed(self, kind: str, text: str) -> NoAnswer:
        """End the process because of a violation; return the exception to raise."""
        self.end()
        self.events.append((kind, text))
        return NoAnswer(kind, text)

    def _wait(self, outgoing: memoryview, watch: Watch) -> list[Any]:
        while True:
            frame = None if outgoing else self._frame()
            late = watch.check(frame is not None)
            if late:
                raise self.failed(*late)
            if frame is not None:
                return self._parse(frame)
            if outgoing:
                try:
                    outgoing = outgoing[self._channel.send(outgoing) :]
                except BlockingIOError:
                    pass
                except OSError:
                    raise self._dead() from None
            self._poll.modify(self._channel, select.POLLIN | (select.POLLOUT if outgoing else 0))
            ready = dict(self._poll.poll(watch.poll_timeout_ms()))
            if ready.get(self._channel.fileno(), 0) & ~select.POLLOUT:
                try:
                    part = self._channel.recv(1 << 16)
                except BlockingIOError:
                    part = None
                except OSError:
                    part = b""
                if part == b"":
                    raise self._dead()
                self._buffer += part or b""
                if len(self._buffer) > (self.limits.reply_kb << 10) + 2 * _FRAME_SLACK:
                    raise self.failed("output_limit", "more than one reply at a time")

    def _frame(self) -> bytes | None:
        limit = self.limits.reply_kb << 10
        try:
            return messages.take_frame(self._buffer, limit + _FRAME_SLACK)
        except BadValue as error:
            raise self.failed("output_limit", f"a reply of {error} bytes, {limit} are allowed") from None

    def _parse(self, frame: bytes) -> list[Any]:
        try:
            return messages.read_reply(frame)
        except BadValue as error:
            raise self.failed("output_limit", f"a malformed reply: {error}") from None

    def _dead(self) -> NoAnswer:
        """End the process that closed its channel; record and return how it ended."""
        usage = self.end(gone=True)
        assert usage is not None
        if usage.signal == signal.SIGSYS:
            event = ("violation", "the program made a forbidden system call")
        elif usage.signal in (signal.SIGKILL, signal.SIGXCPU) and self.clocks.cpu_s >= self.limits.cpu_s:
            event = ("timeout", f"more than {self.limits.cpu_s:g} s of CPU time")
        elif usage.forced:
            event = ("crash", "the program closed its channel")
        elif usage.signal == signal.SIGKILL and usage.peak_mb > _OOM_SHARE * self.limits.memory_mb:
            event = ("oom", f"more than {self.limits.memory_mb} MiB of memory")
        elif usage.signal == signal.SIGKILL:
            self.worker.killed()
            event = ("crash", "the program was killed")
        elif usage.signal:
            event = ("crash", f"the program died of signal {usage.signal}")
        else:
            event = ("crash", f"the program ended itself with exit code {usage.exit_code}")
        self.events.append(event)
        return NoAnswer(*event)
