"""Keeps operations in a file until a thread of its own has sent them.

Promises: `Journal.put` takes microseconds and never fails, whatever the server does.  What was put is in the file
before `put` returns, so it survives ``kill -9``, and leaves the file only when it was sent: by this process, else by
the next one that tracks to the same place.  A file belongs to the process that holds its lock, and the kernel frees
that with the process.  One warning when the server goes away, one when it is back.  Memory stays bounded.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pipeline_lib.tracking.operations import Operation, merged

if TYPE_CHECKING:
    from pipeline_lib.tracking.recorder import Recorder

log = logging.getLogger("symposium.tracking")

_CHUNK = 1 << 20
"""Bytes that are read at a time."""
_PAUSES_S = (0.5, 1.0)
"""Before an operation that failed is tried again."""


class Journal:
    """A file, and a thread that sends what it holds.

    Args:
        connect: makes the connection; called in the thread, again and again until it succeeds.
        folder: where the files of all processes that track to one place lie.
        interval_s: seconds between two sendings.
        retry_s: seconds between two attempts while the server is away.

    Attributes:
        recorder: the connection, once there is one.
        refused: what was given up for good, and why, in words; complete once `close` has returned.
    """

    def __init__(
        self, connect: Callable[[], Recorder], folder: Path, interval_s: float = 5.0, retry_s: float = 20.0
    ) -> None:
        self.recorder: Recorder | None = None
        self.refused: list[str] = []
        self._connect = connect
        self._folder = folder
        self._interval_s, self._retry_s = interval_s, retry_s
        self._path = folder / f"{time.time_ns()}-{os.getpid()}.jsonl"
        self._file: BinaryIO | None = None
        self._lock = threading.Lock()
        self._sent_bytes = 0
        self._put_count = self._sent_count = 0
        self._asked = self._answered = 0
        self._round_done = threading.Condition()
        self._wake = threading.Event()
        self._wake.set()  # connecting takes seconds, in which the work can begin
        self._away_until = 0.0
        self._warned = self._closing = False
        self._thread = threading.Thread(target=self._run, name="tracking", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def put(self, operation: Operation) -> None:
        """Take an operation; never waits for the server and never raises."""
        with self._lock:
            try:
                if self._file is None:
                    self._file = self._open()
                self._file.write(operation.to_line())
                self._put_count += 1
            except OSError as error:
                self._give_up(operation, error)

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Try now to send what was put so far; return whether all of it was sent."""
        target = self._put_count
        with self._round_done:
            self._asked += 1
            asked = self._asked
            self._wake.set()
            self._round_done.wait_for(lambda: self._answered >= asked, timeout_s)
        return self._sent_count >= target

    def close(self, timeout_s: float = 10.0) -> bool:
        """Send the rest for at most ``timeout_s`` seconds; return whether all was sent. A second call does nothing."""
        if not self._closing:
            atexit.unregister(self.close)
            self._closing = True
            self._away_until = 0.0  # one last attempt
            self._wake.set()
            self._thread.join(timeout_s)
            if self._sent_count < self._put_count:
                self._warn("it does not answer in time")
                log.warning("tracking: what could not be sent waits in %s; the next run sends it", self._folder)
            elif self._file is not None:
                self._path.unlink(missing_ok=True)
            if self._file is not None and not self._thread.is_alive():
                self._file.close()  # and with it the lock: others may send what is left
        return self._sent_count >= self._put_count

    def _open(self) -> BinaryIO:
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._path.open("a+b", buffering=0)
        fcntl.flock(file, fcntl.LOCK_EX)
        return file

    def _run(self) -> None:
        closing = False
        while not closing:
            self._wake.wait(self._interval_s)
            self._wake.clear()
            asked, closing = self._asked, self._closing
            if time.monotonic() >= self._away_until:
                self._send()
            with self._round_done:
                self._answered = asked
                self._round_done.notify_all()

    def _send(self) -> None:
        try:
            if self.recorder is None:
                self.recorder = self._connect()
                self._send_what_others_left()
            while lines := self._read():
                self._apply(lines)
                self._forget(lines)
            if self._warned:
                self._warned = False
                log.warning("tracking: the server is back, everything was sent")
        except Exception as error:
            self._away_until = time.monotonic() + self._retry_s
            self._warn(_first_line(error))

    def _read(self) -> list[bytes]:
        """Return the next lines that were not sent."""
        with self._lock:
            if self._file is None:
                return []
            self._file.seek(self._sent_bytes)
            return self._file.readlines(_CHUNK)

    def _forget(self, lines: list[bytes]) -> None:
        """Count lines as sent, and empty the file when it holds no others."""
        with self._lock:
            assert self._file is not None
            self._sent_count += len(lines)
            self._sent_bytes += sum(map(len, lines))
            if self._sent_bytes == self._file.seek(0, os.SEEK_END):
                self._file.truncate(0)
                self._sent_bytes = 0

    def _send_what_others_left(self) -> None:
        """Send the files of processes that are gone, the oldest first, and say of their runs that they were killed."""
        assert self.recorder is not None
        left = False
        for path in sorted(self._folder.glob("*.jsonl")):
            with contextlib.suppress(FileNotFoundError, BlockingIOError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                while lines := file.readlines(_CHUNK):
                    self._apply(lines)
                path.unlink(missing_ok=True)
                left = True
        if left:
            self.recorder.settle_all()

    def _apply(self, lines: list[bytes]) -> None:
        operations = []
        for line in lines:
            try:
                operations.append(Operation.from_line(line))
            except (ValueError, KeyError, TypeError):
                log.warning("tracking: a damaged line in %s is left out", self._folder)
        for operation in merged(operations):
            self._apply_one(operation)

    def _apply_one(self, operation: Operation) -> None:
        """Apply an operation, and give it up if it fails again and again although the server answers."""
        assert self.recorder is not None
        for pause_s in (*_PAUSES_S, None):
            try:
                self.recorder.apply(operation)
                return
            except Exception as error:
                self.recorder.ping()  # raises if it is the server that is away
                if pause_s is None:
                    self._give_up(operation, error)
                else:
                    time.sleep(pause_s)

    def _give_up(self, operation: Operation, error: Exception) -> None:
        self.refused.append(f"{operation.kind} of {operation.key.name}: {_first_line(error)}")
        log.warning("tracking: not recorded: %s", self.refused[-1])

    def _warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "tracking: cannot reach the server (%s); the run goes on, metrics wait in %s", reason, self._folder
            )


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:300]}" if text else type(error).__name__
