"""The broker: assigns jobs to judges, and replaces judges that die.

Promises: every job leads to exactly one answer; a job whose worker died is tried on another one; a timeout is confirmed
by a second run before it is final; when the client ends, everything ends.

`slots.Entry` decides about jobs that lose several workers.

The broker is small, single-threaded and started as a new process (never forked from a trainer), so forking judges is
cheap.
"""

from __future__ import annotations

import math
import os
import resource
import selectors
import shutil
import signal
import socket
import sys
import time
from collections import deque
from typing import Any

from pipeline_lib.sandbox import wire
from pipeline_lib.sandbox.docker_jail import remove_containers
from pipeline_lib.sandbox.runtime import make_run_folder
from pipeline_lib.sandbox.slots import START_S, SUSPECTED, Entry, Slot

_IGNORED_BY_PYTHON = frozenset({signal.SIGPIPE, signal.SIGXFSZ})
_STACK = 8 << 20  # bytes; also of the threads of all processes that are started later
_LIMITS = ("AS", "CPU", "DATA", "FSIZE", "NOFILE", "NPROC")


def reset() -> None:
    """Give this process the usual umask and signal handling, and the soft limits that its hard limits allow."""
    os.umask(0o022)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - _IGNORED_BY_PYTHON:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    for name in _LIMITS:
        kind = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (hard, hard))
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (_STACK if hard < 0 else min(_STACK, hard), hard))


class Client:
    """Receives frames from the client and sends it others.

    Attributes:
        outgoing: bytes that the client has not taken yet.
    """

    def __init__(self, connection: socket.socket, selector: selectors.BaseSelector) -> None:
        self.outgoing = bytearray()
        self._connection = connection
        self._selector = selector
        self._frames = wire.Frames()
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ, None)

    def receive(self) -> list[tuple[wire.Head, bytes]] | None:
        """Return the frames that have arrived, None if the client has disconnected."""
        try:
            data = self._connection.recv(wire.READ_BYTES)
        except BlockingIOError:
            return []
        except ConnectionError:
            return None
        return self._frames.feed(data) if data else None

    def send(self, head: wire.Head, body: bytes = b"") -> None:
        """Queue a frame for the client; `flush` sends it."""
        self.outgoing += wire.pack(head, body)

    def flush(self) -> None:
        """Send as much as the client takes now, and have the selector report when it takes more."""
        try:
            while self.outgoing:
                sent = self._connection.send(self.outgoing)
                del self.outgoing[:sent]
        except BlockingIOError:
            pass
        except ConnectionError:
            self.outgoing.clear()
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.outgoing else 0)
        self._selector.modify(self._connection, events, None)


_BROKEN_S = 60.0  # seconds without any worker before giving up


class Broker:
    """The state of the broker, and its event loop `run`."""

    def __init__(self, client: socket.socket, config: dict[str, Any]) -> None:
        self.config = config
        self.selector = selectors.DefaultSelector()
        self.client = Client(client, self.selector)
        self.slots = [Slot(index) for index in range(config["slots"])]
        self.queue: deque[Entry] = deque()
        self.killed_idle = float("-inf")  # when a worker without a program was last killed
        self.reason = ""
        self.restarts = 0
        self.done = 0
        self.announced = False
        self.last_ready = time.monotonic()
        self.parent = os.getppid()

    def run(self) -> None:
        """Serve until the client disconnects."""
        self.slots[0].start(self.config, self.selector)
        try:
            while True:
                timeout = self._assign()
                if self.client.outgoing:
                    self.client.flush()  # after the slots have their next jobs
                for key, mask in self.selector.select(timeout):
                    if key.data is None:
                        if mask & selectors.EVENT_WRITE:
                            self.client.flush()
                        if mask & selectors.EVENT_READ and not self._receive_from_client():
                            return
                    else:
                        self._receive_from_slot(key.data)
                if os.getppid() != self.parent:
                    return
                self._watch()
        finally:
            for slot in self.slots:
                if slot.pid:
                    os.kill(slot.pid, signal.SIGTERM)
            for slot in self.slots:
                slot.stop(self.selector)
            shutil.rmtree(self.config["run_folder"], ignore_errors=True)

    # -- the client -------------------------------------------------------------------------------------------------

    def _receive_from_client(self) -> bool:
        frames = self.client.receive()
        if frames is None:
            return False
        for head, body in frames:
            if "health" in head:
                self.client.send({"health": self._health()})
            elif "forget" in head:
                unwanted = set(head["forget"])
                self.queue = deque(entry for entry in self.queue if entry.number not in unwanted)
            else:
                self.queue.append(Entry(head["n"], body, head["wall_s"]))
        return True

    def _health(self) -> dict[str, Any]:
        return {
            "slots": self.config["slots"],
            "running": sum(slot.pid != 0 for slot in self.slots),
            "busy": sum(slot.entry is not None for slot in self.slots),
            "queued": len(self.queue),
            "done": self.done,
            "restarts": self.restarts,
            "broker": os.getpid(),
            "judges": [slot.pid for slot in self.slots if slot.pid],
        }

    # -- jobs -------------------------------------------------------------------------------------------------------

    def _assign(self) -> float | None:
        """Assign waiting jobs to idle slots, start missing slots; return the seconds until the next call."""
        now = time.monotonic()
        for watched in self.slots:
            if watched.suspect is not None:
                self._judge_suspect(watched, *watched.suspect, now)
        watching = any(slot.suspect is not None for slot in self.slots)
        idle = [slot for slot in self.slots if slot.ready and slot.entry is None and slot.suspect is None]
        while self.queue and idle:
            entry = self.queue.popleft()
            slot = next((slot for slot in idle if slot.index != entry.avoid), None)
            others = (other for other in self.slots if other.index != entry.avoid)
            if slot is None and any(other.pid or other.start_at <= now for other in others):
                self.queue.appendleft(entry)
                break
            slot = slot or idle[0]
            idle.remove(slot)
            self._give(slot, entry)
        starting = sum(slot.pid != 0 and not slot.ready for slot in self.slots)
        if self.announced or starting == 0:
            # Before the first judge is ready the client has sent no job, and waits.
            needed = len(self.queue) if self.announced else 1
            for slot in self.slots:
                wanted = starting < needed or slot.suspect is not None
                if wanted and slot.pid == 0 and slot.start_at <= now:
                    slot.start(self.config, self.selector)
                    starting += 1
        return 0.2 if watching or (self.queue and not idle) else 1.0

    def _judge_suspect(self, slot: Slot, entry: Entry, error: str, now: float) -> None:
        """End a suspected job if its slot has lived without a program; try it again if it has not."""
        if self.killed_idle > entry.last_lost:
            slot.suspect = None
            self.queue.append(entry)
        elif slot.ready:
            slot.watched_from = min(slot.watched_from, now)
            if now >= slot.watched_from + entry.watch_s:
                slot.suspect = None
                self._end(entry, "crash", error)

    def _give(self, slot: Slot, entry: Entry) -> None:
        if not slot.give(entry):
            self._lost(slot)

    def _retry(self, entry: Entry, slot: Slot, killed: bool, reason: str) -> None:
        """Retry or end a job whose worker died with its program; ``killed``: no action of a program can cause it."""
        entry.avoid = slot.index
        fate = entry.lost(killed, reason, self.killed_idle)
        if fate is not None and fate[0] == SUSPECTED:
            slot.suspect, slot.watched_from = (entry, fate[1]), math.inf
        elif fate is not None:
            self._end(entry, *fate)
        else:
            self.queue.append(entry)

    def _retry_untouched(self, entry: Entry, slot: Slot, started: bool, reason: str) -> None:
        """Retry a job whose program never reached a worker: it died before, or, not ``started``, none could be."""
        entry.avoid = slot.index
        fate = entry.lost_untouched(started, reason)
        if fate is not None:
            self._end(entry, *fate)
        else:
            self.queue.append(entry)

    def _end(self, entry: Entry, status: str, reason: str) -> None:
        self.client.send({"n": entry.number, "status": status, "error": reason, "attempts": entry.attempts})

    # -- slots ------------------------------------------------------------------------------------------------------

    def _receive_from_slot(self, slot: Slot) -> None:
        frames = slot.receive()
        if frames is None:
            self._lost(slot)
            return
        for head, body in frames:
            if "facts" in head:
                self._ready(slot, head)
            elif "broken" in head:
                self._broken(slot, head["broken"])
                return
            elif "idle_death" in head:
                self._lost_idle(head["idle_death"])
                slot.ready = slot.ready and (head["ready"] or slot.entry is not None)
                if not slot.ready:
                    slot.set_deadline(START_S)
            elif slot.entry is not None:
                entry, slot.entry = slot.entry, None
                if "died" in head:
                    slot.ready = head["ready"]
                    slot.set_deadline(START_S)
                    if head["began"]:
                        self.restarts += 1
                        self._retry(entry, slot, head["outside"], head["died"])
                    else:
                        self._retry_untouched(entry, slot, head["jail"], head["died"])
                        if head["jail"]:
                            self._lost_idle(head["outside"])
                elif head["status"] == "timeout" and not (entry.late or head["final"]):
                    entry.late = True
                    self.queue.append(entry)
                else:
                    self.done += 1
                    self.client.send({"n": entry.number, "attempts": entry.attempts}, body)

    def _ready(self, slot: Slot, head: wire.Head) -> None:
        slot.ready = True
        slot.broken = 0
        if not self.announced:
            self.announced = True
            self.config["jails"] = [head["ready"]]
            self.client.send({"ready": head["ready"], "isolation": head["facts"]["isolation"]})

    def _broken(self, slot: Slot, reason: str) -> None:
        """Handle a judge that cannot start its jail; it may have got a job before it noticed that it has none."""
        if slot.entry is not None:
            self._retry_untouched(slot.entry, slot, True, reason)
        slot.stop(self.selector)
        slot.broken += 1
        slot.start_at = time.monotonic() + min(0.05 * 2**slot.broken, 5.0)
        self.reason = reason
        if not self.announced:
            self.client.send({"broken": reason})

    def _lost(self, slot: Slot) -> None:
        entry, started = slot.entry, slot.ready
        status = slot.stop(self.selector)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        if entry is not None:
            self.restarts += 1
            self._retry(entry, slot, killed, "the judge died while it judged this job")
        elif started or killed:
            self._lost_idle(killed)
        else:
            self._broken(slot, "the judge died while it started its jail")

    def _lost_idle(self, killed: bool) -> None:
        self.restarts += 1
        if killed:
            self.killed_idle = time.monotonic()

    def _watch(self) -> None:
        """Kill judges that are stuck; end all jobs as infra_error if no worker can be started for a minute."""
        now = time.monotonic()
        suspects = [slot.suspect[0] for slot in self.slots if slot.suspect]
        if any(slot.ready for slot in self.slots) or not (self.queue or suspects):
            self.last_ready = now
        elif now > self.last_ready + _BROKEN_S:
            self.last_ready = now  # later jobs get the same time
            self.queue.extend(suspects)
            for slot in self.slots:
                slot.suspect = None
            while self.queue:
                reason = f"no worker could be started for {_BROKEN_S:g} s: {self.reason or 'each was killed'}"
                self._end(self.queue.popleft(), "infra_error", reason)
        for slot in self.slots:
            if slot.pid and (slot.entry is not None or not slot.ready) and slot.is_stuck():
                entry = slot.entry
                os.kill(slot.pid, signal.SIGKILL)
                slot.stop(self.selector)
                self.restarts += 1
                if entry is not None:
                    self._retry(entry, slot, False, "the judge did not finish in time")


def main(descriptor: int) -> None:
    """Run the broker on a connected socket; the first frame is its configuration."""
    reset()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    connection = socket.socket(fileno=descriptor)
    frame = wire.Link(connection).receive()
    if frame is not None:
        sys.path.extend(frame[0]["path"])
        try:
            config = frame[0] | {"run_folder": str(make_run_folder())}
        except OSError as error:
            reason = f"it can make no temporary folder ({error}); let TMPDIR name a folder with space"
            connection.sendall(wire.pack({"broken": reason}))
            return
        docker = "docker" in config["jails"]
        if docker:
            remove_containers(mine=False)  # and let judges share the memory of the Docker SDK
        try:
            Broker(connection, config).run()
        finally:
            if docker:
                remove_containers(mine=True)
