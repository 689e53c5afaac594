"""The judge: a trusted process per slot that owns two fork servers, of programs in a jail and of tests.

For one job after the other it takes a process of each and lets them run: see `tests_client`.  It runs no tests itself.
Promises: every accepted job ends in exactly one frame, a verdict or ``died``.  The judge and its fork servers end with
the broker.
"""

from __future__ import annotations

import resource
import select
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from pipeline_lib.sandbox import wire
from pipeline_lib.sandbox.inside import confine
from pipeline_lib.sandbox.jails import start_worker
from pipeline_lib.sandbox.jobs import Limits, Verdict
from pipeline_lib.sandbox.packages import Packages
from pipeline_lib.sandbox.runner import verdict_of
from pipeline_lib.sandbox.runtime import claim_user, own_place
from pipeline_lib.sandbox.tests_client import ENDLESS, TestsDied, TestsProcess
from pipeline_lib.sandbox.tests_server import start_tests
from pipeline_lib.sandbox.worker import JailError, NoPackages, Worker, WorkerDied

_JOBS_PER_WORKER = 5000
_ONLY_HANG_UP = 0  # `select.poll` always reports POLLHUP


class Ended(BaseException):
    """The broker wants this judge to end."""


def _end(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second signal must not interrupt the clean-up
    raise Ended


def serve(connection: socket.socket, slot: int, config: dict[str, Any]) -> None:
    """Judge jobs from ``connection`` until it closes.

    Args:
        connection: to the broker.
        slot: number of this slot.
        config: ``jails`` in the order to try them, and the configuration of `start_worker` and `start_tests`.
    """
    confine.die_with_parent()
    signal.signal(signal.SIGTERM, _end)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    link = wire.Link(connection)
    users = claim_user(), claim_user()
    workers = _Workers(slot, config | {"user": users[0].number, "tests_user": users[1].number})
    try:
        while True:
            if "lean" not in workers.programs:
                try:
                    workers.make_folders()
                    lean = workers.program("lean")
                    workers.tests_of("lean")
                    with suppress(WorkerDied):  # `wait` notices
                        lean.settle()
                except (JailError, OSError) as error:
                    link.send({"broken": str(error)})
                    return
                link.send({"ready": lean.jail.name, "facts": lean.facts})
            killed = workers.wait(connection)
            if killed is not None:
                link.send({"idle_death": killed, "ready": "lean" in workers.programs})
                continue
            frame = link.receive()
            if frame is None:
                return
            head, body = frame
            reply = workers.judge(body)
            if isinstance(reply, Verdict):
                facts = {"status": reply.status.value, "final": reply.error == ENDLESS}
                link.send({"n": head["n"], **facts}, wire.pack_verdict(reply))
            else:
                link.send({"n": head["n"], **reply, "ready": "lean" in workers.programs})
            workers.renew()
    except (BrokenPipeError, ConnectionResetError, Ended):
        return
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # nor the first one, if the end has another reason
        workers.close()


class _Workers:
    """The fork servers of one slot: those of programs, by name, and those of tests, by flavour.

    A flavour is ``lean`` or ``packages``; the name has ``-shown`` after it for programs of which agents see the
    verdict.  So what a program leaves behind by any means when it runs with hidden tests, no program can find that
    could tell an agent.
    """

    def __init__(self, slot: int, config: dict[str, Any]) -> None:
        self.slot, self.config = slot, config
        self.programs: dict[str, Worker] = {}
        self.tests: dict[str, TestsProcess] = {}
        self._packages = Packages(**config["packages"])
        self._limits = Limits(**config["limits"])

    def make_folders(self) -> None:
        """Make the folders of all jails without namespaces now: later, the time would tell something."""
        if "bare" in self.config["jails"]:
            for flavour in ("lean", "packages"):
                for name in (flavour, f"{flavour}-shown", f"tests-{flavour}"):
                    own_place(Path(self.config["run_folder"]), name)

    def program(self, name: str) -> Worker:
        if name in self.programs:
            return self.programs[name]
        reasons = []
        for kind in self.config["jails"]:
            try:
                found = start_worker(kind, self.slot, self.config, name.partition("-")[0], name)
                self.programs[name] = found
                return found
            except NoPackages:
                raise
            except (JailError, OSError) as error:
                reasons.append(f"{kind}: {error}")
        raise JailError("; ".join(reasons))

    def tests_of(self, flavour: str) -> TestsProcess:
        if flavour not in self.tests:
            bare = self.programs["lean"].jail.name == "bare" if "lean" in self.programs else False
            self.tests[flavour] = TestsProcess(start_tests(self.slot, self.config, flavour, bare))
        return self.tests[flavour]

    def judge(self, body: bytes) -> Verdict | dict[str, Any]:
        """Return the verdict on a packed job, or how its workers died."""
        planned = wire.unpack_job(body)
        job = planned.job
        limits = job.limits or self._limits
        # The tests may pass an array to a program that does not import numpy.
        wanted = self._packages.wanted_by("\n".join((job.prelude, job.code, job.tests)))
        flavour = "packages" if wanted else "lean"
        name = flavour + ("-shown" if job.shown else "")
        worker = self.programs.get(name)
        before = worker.jobs if worker is not None else 0
        try:
            try:
                worker = self.program(name)
            except NoPackages:  # run without them: the program's import fails
                self._packages = Packages()
                flavour, name = "lean", name.replace("packages", "lean")
                worker = self.program(name)
                before = worker.jobs
            tests = self.tests_of(flavour)
            started = time.monotonic()
            outcome = tests.run(planned, body, limits, worker)
            return verdict_of(planned, outcome, limits, f"slot-{self.slot}", time.monotonic() - started)
        except TestsDied as error:
            if tests.dead:
                self.tests.pop(flavour).server.close()
            outside = error.outside
            reason, refused = str(error), False
        except (WorkerDied, JailError) as error:
            if flavour in self.tests and self.tests[flavour].dead:
                self.tests.pop(flavour).server.close()
            outside = True if worker is None else _killed(self.programs.pop(name), error)
            reason = str(error)
            refused = isinstance(error, JailError)
        began = worker is not None and worker.jobs > before
        return {"died": reason, "outside": outside, "began": began, "jail": worker is not None and not refused}

    def wait(self, connection: socket.socket) -> bool | None:
        """Wait until there is a job; return whether a fork server was killed if one ends before."""
        while True:
            waiting = select.poll()
            waiting.register(connection, select.POLLIN)
            found: dict[int, tuple[dict[str, Any], str]] = {}
            for flavour, worker in self.programs.items():
                found[worker.control.fileno()] = self.programs, flavour
                waiting.register(worker.control, _ONLY_HANG_UP if worker.settled else select.POLLIN)
            for flavour, tests in self.tests.items():
                found[tests.server.control.fileno()] = self.tests, flavour
                waiting.register(tests.server.control, _ONLY_HANG_UP)
            ready = dict(waiting.poll())
            if connection.fileno() in ready:
                return None
            number = next(number for number in found if number in ready)
            kind, flavour = found[number]
            if kind is self.programs and not ready[number] & select.POLLHUP:
                with suppress(WorkerDied, JailError):
                    self.programs[flavour].settle()
                    continue
            ended = kind.pop(flavour)
            return _killed_idle(ended if isinstance(ended, Worker) else ended.server)

    def renew(self) -> None:
        for flavour, worker in [*self.programs.items()]:
            if worker.jobs >= _JOBS_PER_WORKER:
                self.programs.pop(flavour).close()

    def close(self) -> None:
        for worker in (*self.programs.values(), *(tests.server for tests in self.tests.values())):
            with suppress(OSError):
                worker.close()


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
