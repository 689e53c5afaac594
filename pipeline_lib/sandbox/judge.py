"""The judge: a trusted process per slot that owns a jail and runs the tests of one job after the other.

Promises: every job it accepts ends in exactly one frame, a verdict or ``died``; it ends when the broker does, and its
jail with it.
"""

from __future__ import annotations

import re
import resource
import signal
import socket
from contextlib import suppress
from types import FrameType
from typing import Any

from pipeline_lib.sandbox import wire
from pipeline_lib.sandbox.inside import confine
from pipeline_lib.sandbox.jails import start_worker
from pipeline_lib.sandbox.jobs import Limits
from pipeline_lib.sandbox.runner import Ended, judge
from pipeline_lib.sandbox.runtime import claim_user
from pipeline_lib.sandbox.worker import JailError, Worker, WorkerDied

_MEMORY_MB = 2048  # address space of a judge: a value returned by a program cannot take more
_JOBS_PER_WORKER = 5000
_NAMES_NUMPY = re.compile(r"\bnumpy\b")  # imports take many forms, and loading it for nothing harms nobody


def _end(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough; what follows is cleaning up
    raise Ended


def serve(connection: socket.socket, slot: int, config: dict[str, Any]) -> None:
    """Judge jobs from ``connection`` until it closes.

    Args:
        connection: to the broker.
        slot: number of this slot.
        config: ``jails`` in the order to try them, and what `start_worker` needs.
    """
    confine.die_with_parent()
    signal.signal(signal.SIGTERM, _end)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_MB << 20,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    link = wire.Link(connection)
    limits = Limits(**config["limits"])
    user = claim_user()
    config = config | {"user": user.number}
    workers: dict[str, Worker] = {}
    try:
        while True:
            if "lean" not in workers:
                try:
                    workers["lean"] = _start(slot, config, "lean")
                except JailError as error:
                    link.send({"broken": str(error)})
                    return
                link.send({"ready": workers["lean"].jail.name, "facts": workers["lean"].facts})
            frame = link.receive()
            if frame is None:
                return
            head, body = frame
            planned = wire.unpack_job(body)
            job = planned.job
            flavour = "numpy" if config["packages"] and _NAMES_NUMPY.search(job.prelude + "\n" + job.code) else "lean"
            worker = workers.get(flavour)
            try:
                if worker is None:
                    worker = workers[flavour] = _start(slot, config, flavour)
                verdict = judge(planned, job.limits or limits, worker, f"slot-{slot}")
            except (WorkerDied, JailError) as error:
                outside = True
                if worker is not None:
                    del workers[flavour]
                    known = error.outside if isinstance(error, WorkerDied) else None
                    outside = worker.jail.killed_from_outside() if known is None else known
                    worker.close()
                link.send({"n": head["n"], "died": str(error), "outside": outside, "ready": "lean" in workers})
                continue
            link.send({"n": head["n"], "status": verdict.status.value}, wire.pack_verdict(verdict))
            if worker.jobs >= _JOBS_PER_WORKER:
                workers.pop(flavour).close()
    except (BrokenPipeError, ConnectionResetError, Ended):
        return
    finally:
        for worker in workers.values():
            with suppress(OSError):
                worker.close()


def _start(slot: int, config: dict[str, Any], flavour: str) -> Worker:
    """Start the first jail of ``config['jails']`` that works here."""
    reasons = []
    for kind in config["jails"]:
        try:
            return start_worker(kind, slot, config, flavour)
        except JailError as error:
            reasons.append(f"{kind}: {error}")
    raise JailError("; ".join(reasons))
