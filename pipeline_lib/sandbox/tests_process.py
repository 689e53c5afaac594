"""The process in which tests run: a child of a `tests_server`.

It has two descriptors, the channels to the judge and to the program.  It gets jobs from the judge, and asks it for all
that concerns the program's process: starting it again, its usage, its end.  Promises: what it sends is sealed.
"""

from __future__ import annotations

import gc
import marshal
import os
import resource
import socket
import threading
import traceback
from collections.abc import Sequence
from typing import Any

from pipeline_lib.sandbox import sealed, wire
from pipeline_lib.sandbox.inside.channel import CHANNEL
from pipeline_lib.sandbox.jobs import Limits
from pipeline_lib.sandbox.runner import run_plan
from pipeline_lib.sandbox.worker import Load, Usage


class RemoteWorker:
    """The worker of the program, which the judge holds: see `worker.Worker`.

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
        self._judge.sendall(sealed.seal(self._key, number, message))

    def _receive(self) -> Any:
        while True:
            frame = sealed.take(self._buffer)
            if frame is not None:
                return marshal.loads(frame)
            data, descriptors, _, _ = socket.recv_fds(self._judge, 1 << 16, 1)
            if not data:
                return None
            self._descriptors += descriptors
            self._buffer += data


def serve(limits: dict[str, Any], modules: Sequence[str], space: int) -> None:
    """Run the tests of jobs that come from the judge, until it closes the channel.

    Args:
        limits: of all these jobs, as a dict of `jobs.Limits`.
        modules: see `RemoteWorker`.
        space: bytes of address space that tests may have.
    """
    gc.enable()
    worker = RemoteWorker(socket.socket(fileno=CHANNEL), modules)
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
            resource.setrlimit(resource.RLIMIT_AS, (most, most))  # for the report
        worker.report("done", outcome.cases, outcome.events)
