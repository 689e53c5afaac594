"""The broker: hands jobs to judges, and replaces judges that die.

Promises: every job that comes in leads to exactly one answer; a job whose worker died is tried on another one, and
judged ``crash`` when it has brought down two; a timeout is confirmed by a second run before it is final; when the
client goes away, everything ends.

No act of a program may look like a failure of the sandbox.  A worker that was killed is nobody's known doing, so its
job is tried again; a job that loses one after the other then has to run alone, while other workers stand by without a
program.  When it alone loses its worker again and again and none of those that stand by is killed, the job did it.

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
_SUSPICION = 3  # workers a job may lose by a kill before it has to run alone
_ALONE = 3  # workers it may lose then
_LOSSES = 100  # workers a job may lose while others are killed, too, before it is given back
_STARTS = 8  # times that no worker of the kind that a job needs could be started before it is given back
_DRAIN_S = 10.0  # a job that has to run alone waits for an empty queue, but not for longer
_BROKEN_S = 60.0  # seconds without any worker before giving up
_OVERTIME = 10.0  # a judge that takes so many times a job's wall limit is stuck


class Broker:
    """The state of the broker; `run` is its life."""

    def __init__(self, client: socket.socket, config: dict[str, Any]) -> None:
        self.client = client
        self.config = config
        # Where there is one slot only, a second one stands by while a job runs alone.
        self.slots = [Slot(index) for index in range(max(2, config["slots"]))]
        self.queue: deque[Entry] = deque()
        self.suspects: deque[Entry] = deque()
        self.alone: Entry | None = None  # the suspect that runs now
        self.killed_idle = float("-inf")  # when a worker was killed last that had no program
        self.reason = ""
        self.selector = selectors.DefaultSelector()
        self.frames = wire.Frames()
        self.outgoing = bytearray()
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
                self.suspects = deque(entry for entry in self.suspects if entry.number not in unwanted)
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
            "slots": self.config["slots"],
            "running": sum(slot.pid != 0 for slot in self.slots),
            "busy": sum(slot.entry is not None for slot in self.slots),
            "queued": len(self.queue) + len(self.suspects),
            "done": self.done,
            "restarts": self.restarts,
            "broker": os.getpid(),
            "judges": [slot.pid for slot in self.slots if slot.pid],
        }

    # -- jobs -------------------------------------------------------------------------------------------------------

    def _assign(self) -> float | None:
        """Give waiting jobs to idle slots, start slots that are missing; return when to look again, in seconds."""
        now = time.monotonic()
        if self.alone is not None and any(slot.entry is self.alone for slot in self.slots):
            return 0.2
        self.alone = None
        if self.suspects and (not self.queue or now > self.suspects[0].first_lost + _DRAIN_S):
            return self._assign_alone(now)
        usual = self.slots[: self.config["slots"]]
        idle = [slot for slot in usual if slot.ready and slot.entry is None]
        while self.queue and idle:
            entry = self.queue.popleft()
            slot = next((slot for slot in idle if slot.index != entry.avoid), None)
            others = (other for other in usual if other.index != entry.avoid)
            if slot is None and any(other.pid or other.start_at <= now for other in others):
                self.queue.appendleft(entry)
                break
            slot = slot or idle[0]
            idle.remove(slot)
            self._give(slot, entry, now)
        starting = sum(slot.pid != 0 and not slot.ready for slot in self.slots)
        if self.announced or starting == 0:
            for slot in usual:
                if starting >= len(self.queue):
                    break
                if slot.pid == 0 and slot.start_at <= now:
                    self._start(slot)
                    starting += 1
        return 0.2 if self.queue and not idle else 1.0

    def _assign_alone(self, now: float) -> float:
        """Give the first of the suspects to a slot once no other job runs and another worker stands by."""
        if not any(slot.entry is not None for slot in self.slots):
            ready = [slot for slot in self.slots if slot.ready]
            patient = now < self.suspects[0].first_lost + _BROKEN_S
            if len(ready) >= (2 if patient else 1):
                self.alone = self.suspects.popleft()
                self._give(ready[0], self.alone, now)
            for slot in self.slots[:2]:
                if len(ready) < 2 and slot.pid == 0 and slot.start_at <= now:
                    self._start(slot)
        return 0.2

    def _give(self, slot: Slot, entry: Entry, now: float) -> None:
        assert slot.connection is not None
        entry.attempts += 1
        slot.entry = entry
        slot.deadline = now + _OVERTIME * entry.wall_s + 10
        try:
            slot.connection.sendall(wire.pack({"n": entry.number}, entry.body))
        except OSError:
            self._lost(slot)

    def _retry(self, entry: Entry, slot: Slot, killed: bool, reason: str) -> None:
        """Try a job again whose worker died with its program, or judge it; ``killed`` if no known act can do that."""
        entry.avoid = slot.index
        if killed:
            self._count_loss(entry)
        else:
            entry.deaths += 1
        if entry.deaths >= _DEATHS:
            self._end(entry, "crash", reason)
        elif entry.alone >= _ALONE:
            self._end(entry, "crash", f"{reason}: {entry.losses} times, and nothing else of the sandbox was killed")
        elif entry.losses >= _LOSSES:
            self._end(entry, "infra_error", f"{reason}: {entry.losses} times, as were workers without a program")
        else:
            (self.suspects if entry.suspicion >= _SUSPICION else self.queue).append(entry)

    def _retry_untouched(self, entry: Entry, slot: Slot, head: wire.Head) -> None:
        """Try a job again whose program never came to a worker: it died before, or none could be started."""
        entry.avoid = slot.index
        entry.losses += 1
        if head["jail"]:
            self._lost_idle(head["outside"])
        else:
            entry.unstarted += 1
        if entry.losses >= _LOSSES or entry.unstarted >= _STARTS:
            self._end(entry, "infra_error", f"{head['died']}: {entry.losses} times")
        else:
            self.queue.append(entry)

    def _count_loss(self, entry: Entry) -> None:
        entry.losses += 1
        if entry.suspicion and self.killed_idle > entry.first_lost:
            entry.suspicion = entry.alone = 0  # somebody else kills
            return
        if entry.suspicion >= _SUSPICION:
            entry.alone += 1
        elif entry.suspicion == 0:
            entry.first_lost = time.monotonic()
        entry.suspicion += 1

    def _end(self, entry: Entry, status: str, reason: str) -> None:
        """Tell the client the status of a job that got no verdict."""
        self._tell({"n": entry.number, "status": status, "error": reason, "attempts": entry.attempts})

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
            elif "idle_death" in head:
                self._lost_idle(head["idle_death"])
                slot.ready = slot.ready and (head["ready"] or slot.entry is not None)
                if not slot.ready:
                    slot.deadline = time.monotonic() + START_S
            elif slot.entry is not None:
                entry, slot.entry = slot.entry, None
                if "died" in head:
                    slot.ready = head["ready"]
                    slot.deadline = time.monotonic() + START_S
                    if head["began"]:
                        self.restarts += 1
                        self._retry(entry, slot, head["outside"], head["died"])
                    else:
                        self._retry_untouched(entry, slot, head)
                elif head["status"] == "timeout" and not entry.late:
                    entry.late = True
                    self.queue.append(entry)
                else:
                    self.done += 1
                    self._tell({"n": entry.number, "attempts": entry.attempts}, body)

    def _ready(self, slot: Slot, head: wire.Head) -> None:
        slot.ready = True
        slot.broken = 0
        if not self.announced:
            self.announced = True
            self.config["jails"] = [head["ready"]]
            self._tell({"ready": head["ready"], "isolation": head["facts"]["isolation"]})

    def _broken(self, slot: Slot, reason: str) -> None:
        """Deal with a judge that cannot start its jail."""
        self._stop(slot)
        slot.broken += 1
        slot.start_at = time.monotonic() + min(0.05 * 2**slot.broken, 5.0)
        self.reason = reason
        if not self.announced:
            self._tell({"broken": reason})

    def _lost(self, slot: Slot) -> None:
        """Deal with a judge that is gone."""
        entry, started = slot.entry, slot.ready
        status = self._stop(slot)
        ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        killed = ended_by == signal.SIGKILL
        if entry is not None and ended_by == signal.SIGXCPU:  # of CPU time nobody else can have taken any
            self.restarts += 1
            self._end(entry, "timeout", "the tests took too long on the program's values, in a step without an end")
        elif entry is not None:
            self.restarts += 1
            self._retry(entry, slot, killed, "the judge died while it judged this job")
        elif started or killed:
            self._lost_idle(killed)
        else:
            self._broken(slot, "the judge died while it started its jail")

    def _lost_idle(self, killed: bool) -> None:
        """Deal with the end of a worker that had no program; that somebody killed it clears all suspects."""
        self.restarts += 1
        if not killed:
            return
        self.killed_idle = time.monotonic()
        for entry in self.suspects:
            entry.suspicion = entry.alone = 0
        self.queue.extend(self.suspects)
        self.suspects.clear()

    def _stop(self, slot: Slot) -> int:
        """End the judge of a slot; return its wait status."""
        if slot.connection is not None:
            self.selector.unregister(slot.connection)
        return slot.stop()

    def _watch(self) -> None:
        """Kill judges that take far longer than their job may; give jobs back when no worker can be had at all."""
        now = time.monotonic()
        if any(slot.ready for slot in self.slots[: self.config["slots"]]) or not (self.queue or self.suspects):
            self.last_ready = now
        elif now > self.last_ready + _BROKEN_S:
            self.last_ready = now  # what comes later has another chance
            for waiting in (self.queue, self.suspects):
                while waiting:
                    reason = f"no worker could be started for {_BROKEN_S:g} s: {self.reason or 'each was killed'}"
                    self._end(waiting.popleft(), "infra_error", reason)
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
