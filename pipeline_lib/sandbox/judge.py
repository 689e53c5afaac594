"""The judge: a trusted process per slot that owns a jail and runs the tests of one job after the other.

Promises: every accepted job ends in exactly one frame, a verdict or ``died``.  The judge and its jail end with the
broker.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from pipeline_lib.sandbox import wire
from pipeline_lib.sandbox.inside import confine, scratch
from pipeline_lib.sandbox.jails import start_worker
from pipeline_lib.sandbox.jobs import Limits
from pipeline_lib.sandbox.packages import Packages
from pipeline_lib.sandbox.runner import Ended, judge
from pipeline_lib.sandbox.runtime import claim_user
from pipeline_lib.sandbox.worker import JailError, NoPackages, Worker, WorkerDied

_JOBS_PER_WORKER = 5000
_ONLY_HANG_UP = 0  # `select.poll` always reports POLLHUP


def _end(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second signal must not interrupt the clean-up
    raise Ended


def serve(connection: socket.socket, slot: int, config: dict[str, Any]) -> None:
    """Judge jobs from ``connection`` until it closes.

    Args:
        connection: to the broker.
        slot: number of this slot.
        config: ``jails`` in the order to try them, and the configuration of `start_worker`.
    """
    confine.die_with_parent()
    signal.signal(signal.SIGTERM, _end)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    link = wire.Link(connection)
    limits = Limits(**config["limits"])
    tempfile.tempdir = config["run_folder"]  # files that tests leave there are removed with the broker
    user = claim_user()
    folder = Path(config["run_folder"]) / f"judge-{slot}"  # working directory of tests that write files
    folder.mkdir(exist_ok=True)
    own = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    os.fchdir(own)
    config = config | {"user": user.number}
    packages = Packages(**config["packages"])
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
            dead = _first_dead(connection, workers)
            if dead is not None:
                link.send({"idle_death": _killed_idle(workers.pop(dead)), "ready": "lean" in workers})
                continue
            frame = link.receive()
            if frame is None:
                return
            head, body = frame
            planned = wire.unpack_job(body)
            job = planned.job
            flavour = "packages" if packages.wanted_by(job.prelude + "\n" + job.code) else "lean"
            worker = workers.get(flavour)
            before = worker.jobs if worker is not None else 0
            try:
                if worker is None:
                    try:
                        worker = workers[flavour] = _start(slot, config, flavour)
                    except NoPackages:  # run without them: the program's import fails
                        packages = Packages()
                        worker, flavour = workers["lean"], "lean"
                        before = worker.jobs
                verdict = judge(planned, job.limits or limits, worker, f"slot-{slot}")
            except (WorkerDied, JailError) as error:
                outside = True
                began = worker is not None and worker.jobs > before
                if worker is not None:
                    del workers[flavour]
                    outside = _killed(worker, error)
                fate = {"outside": outside, "began": began, "jail": worker is not None, "ready": "lean" in workers}
                link.send({"n": head["n"], "died": str(error)} | fate)
                continue
            finally:
                os.fchdir(own)
                if any(os.scandir(own)):
                    scratch.wipe(str(folder))
            link.send({"n": head["n"], "status": verdict.status.value}, wire.pack_verdict(verdict))
            if worker.jobs >= _JOBS_PER_WORKER:
                workers.pop(flavour).close()
    except (BrokenPipeError, ConnectionResetError, Ended):
        return
    finally:
        for worker in workers.values():
            with suppress(OSError):
                worker.close()


def _first_dead(connection: socket.socket, workers: dict[str, Worker]) -> str | None:
    """Wait for a job; return the flavour of a fork server that ends before one comes, None once there is one."""
    waiting = select.poll()
    waiting.register(connection, select.POLLIN)
    for worker in workers.values():
        waiting.register(worker.control, _ONLY_HANG_UP)
    ready = dict(waiting.poll())
    if connection.fileno() in ready:
        return None
    return next(flavour for flavour, worker in workers.items() if worker.control.fileno() in ready)


def _killed_idle(worker: Worker) -> bool:
    """Remove a worker that ended while it had no program; return what `_killed` does."""
    try:
        worker.take().close()  # the last child that it offered, or its error
    except WorkerDied as error:
        return _killed(worker, error)
    return _killed(worker)


def _killed(worker: Worker, error: BaseException | None = None) -> bool:
    """Remove a dead worker; return whether it was killed in a way that no program can cause."""
    known = error.outside if isinstance(error, WorkerDied) else None
    outside = worker.jail.killed_from_outside() if known is None else known
    worker.close()
    return outside


def _start(slot: int, config: dict[str, Any], flavour: str) -> Worker:
    """Start the first jail of ``config['jails']`` that works here."""
    reasons = []
    for kind in config["jails"]:
        try:
            return start_worker(kind, slot, config, flavour)
        except NoPackages:
            raise
        except JailError as error:
            reasons.append(f"{kind}: {error}")
    raise JailError("; ".join(reasons))
