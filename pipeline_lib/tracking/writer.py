"""Takes operations without ever making the caller wait, and sends them from a thread of its own.

Promises: `Writer.put` takes microseconds, whatever the server does.  What cannot be sent (server slow, down, database
busy) goes to a file in the waiting folder and is sent later: by this process when the server is back, else by the next
process that tracks to the same place.  One warning when that begins, one line when it is over.  Memory is bounded:
beyond ``capacity`` operations go straight to the file.  Does not promise: operations put within the last interval
before ``kill -9``; a run that resumes logs its history again, and nothing is duplicated.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline_lib.tracking.operations import Operation, RunKey, merged
from pipeline_lib.tracking.processes import is_gone, own_process

if TYPE_CHECKING:
    from pipeline_lib.tracking.ledger import Ledger

log = logging.getLogger("symposium.tracking")

_ATTEMPTS = 3
_in_use: set[Path] = set()
"""Files that a writer of this process still adds to."""


class Writer:
    """A queue, a thread, and a file for bad times.

    Args:
        connect: makes the connection; called in the thread, again and again until it succeeds.
        waiting: folder of the files that wait for the server.
        interval_s: seconds between two sendings.
        retry_s: seconds between two attempts while the server is away.
        capacity: most operations held in memory.
    """

    def __init__(
        self,
        connect: Callable[[], Ledger],
        waiting: Path,
        interval_s: float = 5.0,
        retry_s: float = 20.0,
        capacity: int = 20_000,
    ) -> None:
        self._connect = connect
        self._waiting = waiting
        self._interval_s = interval_s
        self._retry_s = retry_s
        self._capacity = capacity
        self._queue: deque[Operation] = deque()
        self._ledger: Ledger | None = None
        self._away_until = 0.0
        self._warned = False
        self._wake = threading.Event()
        self._wake.set()  # connecting takes seconds, in which the work can begin
        self._sent = threading.Condition()
        self._put_count = self._done_count = 0
        self._put_lock = threading.Lock()
        self._taken: list[Operation] = []
        self._closing = False
        self._not_recorded: dict[RunKey, list[str]] = {}
        self._file_lock = threading.Lock()
        self._file = self._new_file()
        self._thread = threading.Thread(target=self._run, name="tracking", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def put(self, operation: Operation) -> None:
        """Take an operation; never waits for the server and never raises for its sake."""
        with self._put_lock:
            self._put_count += 1
            if len(self._queue) < self._capacity:
                self._queue.append(operation)
                return
            self._done_count += 1
        self._keep([operation])

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Wait until what was put so far is sent, or lies in the waiting file; return whether all was sent."""
        target = self._put_count
        self._wake.set()
        with self._sent:
            done = self._sent.wait_for(lambda: self._done_count >= target, timeout_s)
        return done and not self._file.exists()

    def close(self, timeout_s: float = 10.0) -> bool:
        """Send the rest for at most ``timeout_s`` seconds, keep what is left in the file; return whether all was sent.

        A second call does nothing.
        """
        if self._closing:
            return not self._file.exists()
        atexit.unregister(self.close)
        self._closing = True
        self._away_until = 0.0  # one last attempt
        self._wake.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._warn("it does not answer in time")
            self._keep(list(self._taken))  # perhaps sent meanwhile: sending it twice changes nothing
        self._keep(self._drain())
        _in_use.discard(self._file)
        if self._file.exists():
            log.warning("tracking: what could not be sent waits in %s; the next run sends it", self._waiting)
        return not self._file.exists()

    @property
    def ledger(self) -> Ledger | None:
        """The connection, once there is one."""
        return self._ledger

    def not_recorded(self, key: RunKey) -> list[str]:
        """Return what of a run was given up for good, and why; what waits for the server is not among it."""
        return list(self._not_recorded.get(key, []))

    def _run(self) -> None:
        while True:
            self._wake.wait(self._interval_s)
            self._wake.clear()
            closing = self._closing
            self._work()
            if closing and not self._queue:
                return

    def _work(self) -> None:
        batch = self._drain()
        try:
            if time.monotonic() < self._away_until:
                self._keep(batch)
                return
            pending = self._taken = merged(batch)
            try:
                if self._ledger is None:
                    self._ledger = self._connect()
                self._replay(self._ledger)
                while pending:
                    self._apply(self._ledger, pending[0])
                    del pending[0]
                self._back()
            except Exception as error:
                self._away_until = time.monotonic() + self._retry_s
                self._warn(_first_line(error))
                self._keep(pending)
        finally:
            with self._sent:
                self._done_count += len(batch)
                self._sent.notify_all()

    def _apply(self, ledger: Ledger, operation: Operation) -> None:
        """Apply one operation; one that fails while the server is well is reported and given up."""
        from pipeline_lib.tracking.destination import is_temporary

        for attempt in range(_ATTEMPTS):
            try:
                ledger.apply(operation)
                return
            except Exception as error:
                if is_temporary(error):
                    ledger.ping()  # raises if it is the server
                    if attempt + 1 < _ATTEMPTS:
                        time.sleep(0.5 * (attempt + 1))
                        continue
                self._give_up(ledger, operation, _first_line(error))
                return

    def _give_up(self, ledger: Ledger, operation: Operation, reason: str) -> None:
        """Say in the log, and on the operation's run in MLflow, that it was not recorded."""
        log.warning("tracking: %s of %s was not recorded: %s", operation.kind, operation.key.name, reason)
        told = self._not_recorded.setdefault(operation.key, [])
        told.append(f"{operation.kind}: {reason}")
        try:
            ledger.not_recorded(operation.key, told)
        except Exception as error:
            log.warning("tracking: nor could that be said of %s: %s", operation.key.name, _first_line(error))

    def _replay(self, ledger: Ledger) -> None:
        """Send what this process, and processes that are gone, have left in the waiting folder."""
        if not self._waiting.is_dir():
            return
        with self._file_lock:
            if self._file.exists():  # what comes from now on goes to a new file
                _in_use.discard(self._file)
                self._file = self._new_file()
        for path in sorted(self._waiting.glob("*.jsonl")):
            process = path.name.partition("~")[0]
            if path in _in_use or not (process == own_process() or is_gone(process)):
                continue
            with path.open(encoding="utf-8") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue  # another process sends it
                if path.exists():
                    for operation in merged(_read(path, file.read())):
                        self._apply(ledger, operation)
                    path.unlink(missing_ok=True)

    def _new_file(self) -> Path:
        file = self._waiting / f"{own_process()}~{time.time_ns()}.jsonl"
        _in_use.add(file)
        return file

    def _keep(self, operations: list[Operation]) -> None:
        if not operations:
            return
        text = "".join(json.dumps(operation.to_json()) + "\n" for operation in operations)
        with self._file_lock:
            try:
                self._waiting.mkdir(parents=True, exist_ok=True)
                with self._file.open("a", encoding="utf-8") as file:
                    file.write(text)
            except OSError as error:
                log.warning("tracking: %d records are lost: %s", len(operations), error)
                for operation in operations:
                    self._not_recorded.setdefault(operation.key, []).append(f"{operation.kind}: {error}")

    def _drain(self) -> list[Operation]:
        batch = []
        while self._queue:
            try:
                batch.append(self._queue.popleft())
            except IndexError:  # the other side took it
                break
        return batch

    def _warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "tracking: cannot reach the server (%s); the run goes on, metrics wait in %s", reason, self._waiting
            )

    def _back(self) -> None:
        if self._warned and not self._file.exists():
            self._warned = False
            log.warning("tracking: the server is back, everything was sent")


def _read(path: Path, text: str) -> list[Operation]:
    operations = []
    for line in text.splitlines():
        try:
            operations.append(Operation.from_json(json.loads(line)))
        except (ValueError, KeyError, TypeError):
            log.warning("tracking: %s: a line is damaged and is left out", path)
    return operations


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:300]}" if text else type(error).__name__
