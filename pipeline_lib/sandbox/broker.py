"""The broker: hands jobs to judges, and replaces judges that die.

Promises: every job that comes in leads to exactly one answer; a job whose worker died is tried on another one, and
judged ``crash`` when it has brought down two; a timeout is confirmed by a second run before it is final; when the
client goes away, everything ends.

It is small, single-threaded and started afresh (never forked from a trainer), so that forking judges is cheap.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import socket
import sys
import time
from collections import deque
from typing import Any

from pipeline_lib.sandbox import wire
from pipeline_lib.sandbox.docker_jail import remove_orphans
from pipeline_lib.sandbox.orphans import make_run_folder
from pipeline_lib.sandbox.slots import START_S, Entry, Slot

_DEATHS = 2  # workers a job may bring down before it is judged a crash
_OUTSIDE_DEATHS = 30  # workers a job may lose through others before it is given back: one that takes seconds loses many
_BROKEN_STARTS, _BROKEN_S = 4, 60.0  # failed starts in a row, and seconds without any worker, before giving up
_OVERTIME = 10.0  # a judge that takes so many times a job's wall limit is stuck


class Broker:
    """The state of the broker; `run` is its life."""

    def __init__(self, client: socket.socket, config: dict[str, Any]) -> None:
        self.client = client
        self.config = config
        self.slots = [Slot(index) for index in range(config["slots"])]
        self.queue: deque[Entry] = deque()
        self.selector = selectors.DefaultSelector()
        self.frames = wire.Frames()
        self.outgoing = bytearray()
        self.broken = 0
        self.restarts = 0
        self.done = 0
        self.announced = False
        self.last_ready = time.monotonic()
        self.parent = os.getppid()
        client.setblocking(False)
        self.selector.register(client, selectors.EVENT_READ, None)

    def run(self) -> None:
        """Serve until the client is gone."""
        self._start(self.slots[0])
        try:
            while True:
                timeout = self._assign()
                if self.outgoing:
                    self._flush()  # after the slots have their next jobs
                for key, mask in self.selector.select(timeout):
                    if key.data is None:
                        if mask & selectors.EVENT_WRITE:
                            self._flush()
                        if mask & selectors.EVENT_READ and not self._hear_client():
                            return
                    else:
                        self._hear_slot(key.data)
                if os.getppid() != self.parent:
                    return
                self._watch()
        finally:
            for slot in self.slots:
                if slot.pid:
                    os.kill(slot.pid, signal.SIGTERM)
            for slot in self.slots:
                self._stop(slot)
            shutil.rmtree(self.config["run_folder"], ignore_errors=True)

    # -- the client -------------------------------------------------------------------------------------------------

    def _hear_client(self) -> bool:
        try:
            data = self.client.recv(1 << 20)
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        if not data:
            return False
        for head, body in self.frames.feed(data):
            if "health" in head:
                self._tell({"health": self._health()})
            elif "forget" in head:
                unwanted = set(head["forget"])
                self.queue = deque(entry for entry in self.queue if entry.number not in unwanted)
            else:
                self.queue.append(Entry(head["n"], body, head["wall_s"]))
        return True

    def _tell(self, head: wire.Head, body: bytes = b"") -> None:
        self.outgoing += wire.pack(head, body)

    def _flush(self) -> None:
        try:
            while self.outgoing:
                sent = self.client.send(self.outgoing)
                del self.outgoing[:sent]
        except BlockingIOError:
            pass
        except ConnectionError:
            self.outgoing.clear()
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.outgoing else 0)
        self.selector.modify(self.client, events, None)

    def _health(self) -> dict[str, Any]:
        return {
            "slots": len(self.slots),
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
        """Give waiting jobs to idle slots, start slots that are missing; return when to look again, in seconds."""
        now = time.monotonic()
        idle = [slot for slot in self.slots if slot.ready and slot.entry is None]
        while self.queue and idle:
            entry = self.queue.popleft()
            slot = next((slot for slot in idle if slot.index != entry.avoid), None)
            others = (other for other in self.slots if other.index != entry.avoid)
            if slot is None and any(other.pid or other.start_at <= now for other in others):
                self.queue.appendleft(entry)
                break
            slot = slot or idle[0]
            idle.remove(slot)
            self._give(slot, entry, now)
        starting = sum(slot.pid != 0 and not slot.ready for slot in self.slots)
        if self.announced or starting == 0:
            for slot in self.slots:
                if starting >= len(self.queue):
                    break
                if slot.pid == 0 and slot.start_at <= now:
                    self._start(slot)
                    starting += 1
        return 0.2 if self.queue and not idle else 1.0

    def _give(self, slot: Slot, entry: Entry, now: float) -> None:
        assert slot.connection is not None
        entry.attempts += 1
        slot.entry = entry
        slot.deadline = now + _OVERTIME * entry.wall_s + 10
        try:
            slot.connection.sendall(wire.pack({"n": entry.number}, entry.body))
        except OSError:
            self._lost(slot)

    def _retry(self, entry: Entry, slot: Slot, outside: bool, reason: str) -> None:
        """Try a job again whose worker died, or judge it."""
        entry.avoid = slot.index
        if outside:
            entry.outside += 1
        else:
            entry.deaths += 1
        if entry.deaths >= _DEATHS or entry.outside >= _OUTSIDE_DEATHS:
            what = "crash" if entry.deaths >= _DEATHS else "infra"
            self._tell({"n": entry.number, what: reason, "attempts": entry.attempts})
            return
        self.queue.appendleft(entry)

    # -- slots ------------------------------------------------------------------------------------------------------

    def _start(self, slot: Slot) -> None:
        self.selector.register(slot.start(self.config), selectors.EVENT_READ, slot)

    def _hear_slot(self, slot: Slot) -> None:
        if slot.connection is None:
            return
        frames = slot.hear()
        if frames is None:
            self._lost(slot)
            return
        for head, body in frames:
            if "facts" in head:
                self._ready(slot, head)
            elif "broken" in head:
                self._broken(slot, head["broken"])
                return
            elif slot.entry is not None:
                entry, slot.entry = slot.entry, None
                if "died" in head:
                    slot.ready = head["ready"]
                    slot.deadline = time.monotonic() + START_S
                    self.restarts += 1
                    self._retry(entry, slot, head["outside"], head["died"])
                elif head["status"] == "timeout" and not entry.late:
                    entry.late = True
                    self.queue.append(entry)
                else:
                    self.done += 1
                    self._tell({"n": entry.number, "attempts": entry.attempts}, body)

    def _ready(self, slot: Slot, head: wire.Head) -> None:
        slot.ready = True
        self.broken = 0
        if not self.announced:
            self.announced = True
            self.config["jails"] = [head["ready"]]
            self._tell({"ready": head["ready"], "isolation": head["facts"]["isolation"]})

    def _broken(self, slot: Slot, reason: str) -> None:
        """Deal with a judge that cannot start its jail."""
        self._stop(slot)
        self.broken += 1
        slot.start_at = time.monotonic() + min(0.05 * 2**self.broken, 5.0)
        if not self.announced:
            self._tell({"broken": reason})
        elif self.broken >= _BROKEN_STARTS and time.monotonic() > self.last_ready + _BROKEN_S:
            while self.queue:
                entry = self.queue.popleft()
                self._tell({"n": entry.number, "infra": reason, "attempts": entry.attempts})

    def _lost(self, slot: Slot) -> None:
        """Deal with a judge that is gone."""
        entry, started = slot.entry, slot.ready
        if not started and entry is None:
            self._broken(slot, "the judge died while it started its jail")
            return
        status = self._stop(slot)
        outside = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        self.restarts += 1
        if entry is not None:
            self._retry(entry, slot, outside, "the judge died while it judged this job")

    def _stop(self, slot: Slot) -> int:
        """End the judge of a slot; return its wait status."""
        if slot.connection is not None:
            self.selector.unregister(slot.connection)
        return slot.stop()

    def _watch(self) -> None:
        """Kill judges that take far longer than their job may."""
        now = time.monotonic()
        if any(slot.ready for slot in self.slots) or not self.queue:
            self.last_ready = now
        for slot in self.slots:
            if slot.pid and (slot.entry is not None or not slot.ready) and now > slot.deadline:
                entry = slot.entry
                os.kill(slot.pid, signal.SIGKILL)
                self._stop(slot)
                self.restarts += 1
                if entry is not None:
                    self._retry(entry, slot, False, "the judge did not finish in time")


def main(descriptor: int) -> None:
    """Run the broker on a connected socket; the first frame is its configuration."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    connection = socket.socket(fileno=descriptor)
    frame = wire.Link(connection).receive()
    if frame is not None:
        sys.path.extend(frame[0]["path"])
        config = frame[0] | {"run_folder": str(make_run_folder())}
        if "docker" in config["jails"]:
            remove_orphans()  # and let judges share the memory of the Docker SDK
        Broker(connection, config).run()
