"""Stores operations in a file until a thread has sent them.

Promises: `Journal.put` takes microseconds and never fails because of the server.  An operation is in the file before
`put` returns, so it survives ``kill -9``, and is removed only after it was sent, by this process or by the next one
with the same destination.  A file belongs to the process that holds its lock, which the kernel releases with the
process.  There is one warning when the server becomes unavailable and one when it is back.  Memory is bounded.
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
"""Pauses before an operation that failed is tried again."""
_RETRY_S = 20.0
"""Seconds between two attempts while the server is unavailable."""


class Journal:
    """A file, and a thread that sends its operations.

    Args:
        connect: creates the connection; called in the thread until it succeeds.
        folder: folder of the files of all processes with the same destination.
        interval_s: seconds between two rounds of sending.

    Attributes:
        recorder: the connection, once there is one.
        rejected: operations that were given up, and why; complete after `close` has returned.
    """

    def __init__(self, connect: Callable[[], Recorder], folder: Path, interval_s: float = 5.0) -> None:
        self.recorder: Recorder | None = None
        self.rejected: list[str] = []
        self._connect = connect
        self._folder = folder
        self._interval_s = interval_s
        self._path = folder / f"{time.time_ns()}-{os.getpid()}.jsonl"
        self._file: BinaryIO | None = None
        self._lock = threading.Lock()
        self._sent_bytes = 0
        self._put_count = self._sent_count = 0
        self._rounds_requested = self._rounds_done = 0
        self._round_done = threading.Condition()
        self._wake = threading.Event()
        self._wake.set()  # connect at once: it takes seconds
        self._retry_at = 0.0
        self._warned = self._closing = False
        self._thread = threading.Thread(target=self._run, name="tracking", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def put(self, operation: Operation) -> None:
        """Store an operation; never waits for the server and never raises."""
        with self._lock:
            try:
                if self._file is None:
                    self._file = self._open()
                self._file.write(operation.to_line())
                self._put_count += 1
            except OSError as error:
                self._give_up(operation, error)

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Try now to send everything stored so far; return whether all of it was sent."""
        target = self._put_count
        with self._round_done:
            self._rounds_requested += 1
            requested = self._rounds_requested
            self._wake.set()
            self._round_done.wait_for(lambda: self._rounds_done >= requested, timeout_s)
        return self._sent_count >= target

    def close(self, timeout_s: float = 10.0) -> bool:
        """Send the rest for at most ``timeout_s`` seconds; return whether all was sent. A second call does nothing."""
        if not self._closing:
            atexit.unregister(self.close)
            self._closing = True
            self._retry_at = 0.0  # one last attempt
            self._wake.set()
            self._thread.join(timeout_s)
            if self._sent_count < self._put_count:
                self._warn("it does not answer in time")
                log.warning("tracking: what could not be sent waits in %s; the next run sends it", self._folder)
            elif self._file is not None:
                self._path.unlink(missing_ok=True)
            if self._file is not None and not self._thread.is_alive():
                self._file.close()  # releases the lock, so that others may send the rest
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
            requested, closing = self._rounds_requested, self._closing
            if time.monotonic() >= self._retry_at:
                self._send()
            with self._round_done:
                self._rounds_done = requested
                self._round_done.notify_all()

    def _send(self) -> None:
        try:
            if self.recorder is None:
                self.recorder = self._connect()
                self._send_orphaned()
            while lines := self._read():
                self._apply(lines)
                self._forget(lines)
            if self._warned:
                self._warned = False
                log.warning("tracking: the server is back, everything was sent")
        except Exception as error:  # MLflow raises many types; the operations stay in the file
            self._retry_at = time.monotonic() + _RETRY_S
            self._warn(_first_line(error))

    def _read(self) -> list[bytes]:
        """Return the next unsent lines."""
        with self._lock:
            if self._file is None:
                return []
            self._file.seek(self._sent_bytes)
            return self._file.readlines(_CHUNK)

    def _forget(self, lines: list[bytes]) -> None:
        """Count lines as sent, and empty the file if all are sent."""
        with self._lock:
            assert self._file is not None
            self._sent_count += len(lines)
            self._sent_bytes += sum(map(len, lines))
            if self._sent_bytes == self._file.seek(0, os.SEEK_END):
                self._file.truncate(0)
                self._sent_bytes = 0

    def _send_orphaned(self) -> None:
        """Send the files of processes that have ended, the oldest first, and update the states of their runs."""
        assert self.recorder is not None
        left = False
        for path in sorted(self._folder.glob("*.jsonl")):
            with contextlib.suppress(FileNotFoundError, BlockingIOError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                while lines := file.readlines(_CHUNK):
                    self._apply(lines, orphaned=True)
                path.unlink(missing_ok=True)
                left = True
        if left:
            self.recorder.update_all_states()

    def _apply(self, lines: list[bytes], orphaned: bool = False) -> None:
        operations = []
        for line in lines:
            try:
                operations.append(Operation.from_line(line))
            except (ValueError, KeyError, TypeError):
                log.warning("tracking: a damaged line in %s is left out", self._folder)
        for operation in merged(operations):
            self._apply_one(operation, orphaned)

    def _apply_one(self, operation: Operation, orphaned: bool) -> None:
        """Apply an operation; give it up if all retries fail although the server answers.

        Nothing is said of files that are gone of a process that has ended, as those of a report that was killed: who
        continues makes them anew, and records them.
        """
        assert self.recorder is not None
        for pause_s in (*_PAUSES_S, None):
            try:
                self.recorder.apply(operation)
                return
            except Exception as error:
                if orphaned and isinstance(error, FileNotFoundError):
                    return
                self.recorder.ping()  # raises if the server is unavailable
                if pause_s is None:
                    self._give_up(operation, error)
                else:
                    time.sleep(pause_s)

    def _give_up(self, operation: Operation, error: Exception) -> None:
        self.rejected.append(f"{operation.kind} of {operation.key.name}: {_first_line(error)}")
        log.warning("tracking: not recorded: %s", self.rejected[-1])

    def _warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "tracking: cannot reach the server (%s); the run goes on, metrics wait in %s",
                reason.partition(" with exception ")[0],  # all that follows are classes of urllib3
                self._folder,
            )


def is_left(folder: Path) -> bool:
    """Return whether the folder has something of a process that has ended."""
    for path in folder.glob("*.jsonl"):
        with contextlib.suppress(FileNotFoundError, BlockingIOError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:300]}" if text else type(error).__name__
