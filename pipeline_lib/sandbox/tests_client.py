"""The judge's side of the process of tests: gives it jobs, operates the program for it, and bounds its time.

Tests run in a fork that has run no tests before, except those that leave nothing behind (`Planned.stateless`); a
process that has run any others is never used again.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, astuple
from typing import Any

from pipeline_lib.sandbox import wire
from pipeline_lib.sandbox.jobs import Limits
from pipeline_lib.sandbox.runner import Outcome
from pipeline_lib.sandbox.tests_source import Planned
from pipeline_lib.sandbox.time_limits import leaf, runnable_s, waited_for_processor
from pipeline_lib.sandbox.worker import Jail, JailError, Usage, Worker, WorkerDied

LATE = "the tests took too long on the program's values"
ENDLESS = f"{LATE}, in a step without an end"  # by the kernel's clock of CPU time, which other processes do not affect
_SHARE = 2.0  # wall limits that a job may take: one for the program, one for the tests
_MIN_GRACE_S = 0.005
_LAST_S = 2.0  # to report, after the time is over
_LONGEST_POLL_S = 1.0
_MOST_JOBS = 500  # of one process; one if the time of all together would be limited


class TestsDied(Exception):
    """The process that ran the tests, or its fork server, has ended without an outcome; ``blame``: of the job."""

    __test__ = False

    def __init__(self, text: str, blame: int = 0) -> None:
        super().__init__(text)
        self.blame = blame


class TestsProcess:
    """Runs the tests of jobs in processes of a fork server.

    Args:
        server: of tests, see `tests_server`.

    Attributes:
        dead: the fork server is dead.
    """

    __test__ = False

    def __init__(self, server: Worker) -> None:
        self.server = server
        self.dead = False
        self._usual = Limits(**server.usual_limits)
        self._channel: socket.socket | None = None
        self._jobs = 0
        self._most_jobs = _MOST_JOBS if resource.getrlimit(resource.RLIMIT_CPU)[1] < 0 else 1

    def run(self, planned: Planned, body: bytes, limits: Limits, program: Worker) -> Outcome:
        """Run the one plan of ``planned``, packed as ``body``, with a new process of the program, and end that.

        Raises:
            TestsDied: there is no outcome.
            WorkerDied: the program's jail died.
            JailError: this machine does not give program or tests what they are promised.
        """
        own = None if limits == self._usual else asdict(limits)
        if own is not None or self._jobs >= self._most_jobs:
            self._discard()
        if self._channel is None:
            self._channel, self._jobs = self._serve(self.server.take, own), 0
        self._jobs += 1
        job = _Job(self._channel, self.server.jail, program, own, lambda: self._serve(self.server.interrupt))
        clean = False
        try:
            outcome = job.run(body, limits.wall_s)
            clean = own is None and planned.stateless and not outcome.events
        except (wire.Broken, OSError) as error:
            outcome = self._ended(planned, isinstance(error, wire.Broken))
        finally:
            try:
                job.finish()
            finally:
                if not clean:
                    self._discard()
        outcome.cpu_s, outcome.peak_mb = job.cpu_s, job.peak_mb
        return outcome

    def _discard(self, gone: bool = False) -> Usage | None:
        if self._channel is None:
            return None
        self._channel.close()
        self._channel = None
        usage: Usage = self._serve(self.server.finish, gone)
        return usage

    def _serve(self, command: Callable[..., Any], *values: Any) -> Any:
        """Return the value of a command of the fork server of tests; raises `TestsDied` or JailError if it is dead."""
        try:
            return command(*values)
        except WorkerDied as error:
            self.dead = True
            raise TestsDied(f"the fork server of tests: {error}") from None
        except JailError:
            self.dead = True  # it has no process
            raise

    def _ended(self, planned: Planned, broken: bool) -> Outcome:
        """Return the outcome of tests whose process ended or had to be ended without one, if it was too slow."""
        usage = self._discard(gone=True)
        assert usage is not None
        if usage.signal == signal.SIGXCPU or (usage.forced and not broken):
            cases = [("skipped", "not reached")] * planned.total
            return Outcome(cases, [("timeout", ENDLESS if usage.signal == signal.SIGXCPU else LATE)])
        how = "sent what is no outcome" if broken else f"ended (signal {usage.signal}, exit code {usage.exit_code})"
        killed = usage.signal == signal.SIGKILL and not usage.forced
        raise TestsDied(f"the process of the tests {how}", wire.KILLED if killed else wire.ITSELF)


class _Job:
    """One job in the process of the tests: its questions about the program, and its time.

    Attributes:
        cpu_s, peak_mb: of the program's processes that have ended.
    """

    def __init__(
        self,
        channel: socket.socket,
        jail: Jail,
        program: Worker,
        limits: dict[str, Any] | None,
        interrupt: Callable[[], None],
    ) -> None:
        self.cpu_s = self.peak_mb = 0.0
        self._channel, self._interrupt, self._tests_jail = channel, interrupt, jail
        self._program, self._limits = program, limits
        self._key = os.urandom(wire.KEY_BYTES)
        self._received = 0
        self._buffer = bytearray()
        self._running = False  # the program has a process

    def run(self, body: bytes, wall_s: float) -> Outcome:
        """Give the process a job and answer its questions until it reports the outcome.

        Raises:
            OSError: it has ended, or did not report in time.
            sealed.Broken: it sent something else.
        """
        with self._start_program() as channel:
            self._send(wire.pack_value((self._key, body)), [channel.fileno()])
        left, interrupted = _SHARE * wall_s, False
        excused = 0.0
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        poll.register(self._program.control, 0)  # `select.poll` always reports its end
        while True:
            frame = wire.take_value(self._buffer)
            if frame is not None:
                command, *values = wire.unseal(self._key, self._received, frame)
                self._received += 1
                if command == "done":
                    return Outcome(*values)
                if command == "fault":
                    raise TestsDied(f"a fault of the process of the tests: {values[0]}", wire.ITSELF)
                self._answer(command, *values)
                continue
            asked, began = min(left, _LONGEST_POLL_S), time.monotonic()
            ready = dict(poll.poll(1000 * asked))
            left -= min(time.monotonic() - began, asked)  # not the time in which the machine stood still
            if self._program.control.fileno() in ready:
                raise WorkerDied("the fork server ended during a job")
            if ready:
                data = self._channel.recv(1 << 16)
                if not data:
                    raise ConnectionError
                self._buffer += data
            elif left <= 0:
                before, excused = excused, self._excused_s()
                left = excused - before
                if left < _MIN_GRACE_S:
                    if interrupted:
                        raise TimeoutError
                    interrupted, left = True, _LAST_S
                    self._interrupt()

    def finish(self, gone: bool = False) -> Usage | None:
        if not self._running:
            return None
        self._running = False
        usage = self._program.finish(gone)
        self.cpu_s += usage.cpu_s
        self.peak_mb = max(self.peak_mb, usage.peak_mb)
        return usage

    def _start_program(self) -> socket.socket:
        channel = self._program.take(self._limits)
        self._running = True
        return channel

    def _answer(self, command: str, number: int, *values: Any) -> None:
        if command == "take" and not self._running:
            with self._start_program() as channel:
                self._send(wire.pack_value((number,)), [channel.fileno()])
            return
        if command == "load" and self._running:
            answer: tuple[Any, ...] = astuple(self._program.load())
        elif command == "finish" and (usage := self.finish(*values)) is not None:
            answer = astuple(usage)
        elif command == "killed":
            raise WorkerDied("the program's process was killed")
        elif command == "waited":
            answer = (waited_for_processor(self._program.jail.host_pid),)
        else:
            raise wire.Broken
        self._send(wire.pack_value((number, *answer)), [])

    def _send(self, data: bytes, descriptors: list[int]) -> None:
        sent = socket.send_fds(self._channel, [data], descriptors)
        self._channel.sendall(memoryview(data)[sent:])

    def _excused_s(self) -> float:
        """Return the seconds in which the program waited for a processor, and the tests ran or waited for one."""
        waited = waited_for_processor(self._program.jail.host_pid) or 0.0
        return waited + (runnable_s(leaf(self._tests_jail.host_pid)) or 0.0)
