"""The judge: a trusted process per slot that owns two fork servers, of programs in a jail and of tests.

For one job after the other it takes a process of each and lets them run: see `tests_client`.  It runs no tests itself.
Promises: every accepted job ends in exactly one answer.  The judge and its fork servers end with
their parent.
"""

from __future__ import annotations

import os
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
from pipeline_lib.sandbox.jobs import Limits
from pipeline_lib.sandbox.packages import Packages
from pipeline_lib.sandbox.runner import verdict_of
from pipeline_lib.sandbox.runtime import claim_user, own_place
from pipeline_lib.sandbox.tests_client import ENDLESS, TestsDied, TestsProcess
from pipeline_lib.sandbox.tests_server import start_tests
from pipeline_lib.sandbox.worker import JailError, NoPackages, Worker, WorkerDied

_JOBS_PER_WORKER = 5000
_ONLY_HANG_UP = 0  # `select.poll` always reports POLLHUP


class Ended(BaseException):
    """This judge has to end."""


def _end(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second signal must not interrupt the clean-up
    raise Ended


def serve(connection: socket.socket, slot: int, config: dict[str, Any]) -> None:
    """Judge jobs from ``connection`` until it closes.

    It says ``started`` and its process id; on every job ``verdict``, that, and whether it is final though it is a
    timeout, or ``died``, how its workers have ended, and how much the job is to blame; at first, after ``died`` and
    when a fork server has ended ``ready``, kind and level of its jails, or ``broken`` and why, and then it ends.

    Args:
        connection: to the slot.
        slot: its number.
        config: ``jails`` in the order to try them, and the configuration of `start_worker` and `start_tests`.
    """
    confine.die_with_parent()
    signal.signal(signal.SIGTERM, _end)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    link = wire.Link(connection)
    users = claim_user(), claim_user()
    workers = _Workers(slot, config | {"user": users[0].number, "tests_user": users[1].number})
    try:
        link.send("started", os.getpid())
        ready = False
        while True:
            if not ready or "lean" not in workers.programs:
                try:
                    link.send("ready", *workers.start())
                except (JailError, OSError) as error:
                    link.send("broken", str(error))
                    return
                ready = True
            if not workers.wait(connection):
                continue
            job = link.receive()
            if job is None:
                return
            kind, *answer = workers.judge(*job)
            link.send(kind, *answer)
            ready = kind != "died"
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

    def start(self) -> tuple[str, str]:
        """Start the fork servers that most jobs need; return kind and level of the jail."""
        if "bare" in self.config["jails"]:  # make all folders now: later, the time would tell something
            for flavour in ("lean", "packages"):
                for name in (flavour, f"{flavour}-shown", f"tests-{flavour}"):
                    own_place(Path(self.config["run_folder"]), name)
        lean = self.program("lean")
        self.tests_of("lean")
        with suppress(WorkerDied):  # `wait` notices
            lean.settle()
        return lean.jail.name, str(lean.facts["isolation"])

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

    def judge(self, body: bytes) -> tuple[Any, ...]:
        """Return the verdict on a packed job, or how its workers died; see `serve`."""
        planned = wire.unpack_job(body)
        job = planned.job
        limits = job.limits or self._limits
        # The tests may pass an array to a program that does not import numpy.
        wanted = self._packages.wanted_by("\n".join((job.prelude, job.code, job.tests)))
        flavour = "packages" if wanted else "lean"
        name = flavour + ("-shown" if job.shown else "")
        try:
            try:
                worker = self.program(name)
            except NoPackages:  # run without them: the program's import fails
                self._packages = Packages()
                flavour, name = "lean", name.replace("packages", "lean")
                worker = self.program(name)
            tests = self.tests_of(flavour)
            started = time.monotonic()
            outcome = tests.run(planned, body, limits, worker)
            wall_s = time.monotonic() - started
        except (TestsDied, WorkerDied, JailError) as error:
            if flavour in self.tests and self.tests[flavour].dead:
                self.tests.pop(flavour).server.close()
            if not isinstance(error, TestsDied) and name in self.programs:
                self.programs.pop(name).close()
            return "died", str(error), error.blame if isinstance(error, TestsDied) else 0
        verdict = verdict_of(planned, outcome, limits, f"slot-{self.slot}", wall_s)
        return "verdict", wire.pack_verdict(verdict), verdict.error == ENDLESS

    def wait(self, connection: socket.socket) -> bool:
        """Wait until there is a job; return False if a fork server, which is then removed, ends before."""
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
                return True
            number = next(number for number in found if number in ready)
            kind, flavour = found[number]
            if kind is self.programs and not ready[number] & select.POLLHUP:
                with suppress(WorkerDied, JailError):
                    self.programs[flavour].settle()
                    continue
            ended = kind.pop(flavour)
            (ended if isinstance(ended, Worker) else ended.server).close()
            return False

    def renew(self) -> None:
        for flavour, worker in [*self.programs.items()]:
            if worker.jobs >= _JOBS_PER_WORKER:
                self.programs.pop(flavour).close()

    def close(self) -> None:
        for worker in (*self.programs.values(), *(tests.server for tests in self.tests.values())):
            with suppress(OSError):
                worker.close()
