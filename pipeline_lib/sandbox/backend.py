"""What all backends have in common: their interface, and the planning of tests.

Tests that use `unittest` are collected first, by a job of its own.  A collection runs where tests run, because they may
need what is installed there, and runs no program: the program's names are blank.  So the number of cases follows from
the tests alone, and is known before any program runs.
"""

from __future__ import annotations

import ast
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum
from functools import lru_cache
from itertools import count
from typing import Any, Protocol

from pipeline_lib.sandbox.jobs import Job, Status, Verdict
from pipeline_lib.sandbox.tests_source import BadTests, Planned, may_be_unittest, plan_job


class SandboxUnavailable(RuntimeError):
    """The sandbox cannot run here with these settings; the message says what is missing and what to do."""


class Backend(Protocol):
    """Runs jobs, on this machine or elsewhere."""

    name: str
    level: str

    def execute(self, jobs: Sequence[Planned]) -> Iterator[Verdict]:
        """Yield one verdict per job, in any order; no two jobs have the same id."""
        ...

    def health(self) -> dict[str, Any]:
        """Return facts about the backend: slots, queue, restarts, isolation level."""
        ...

    def close(self) -> None:
        """Free all resources; a second call does nothing."""
        ...


_MOST = 10_000  # collections to remember


class Planner:
    """Plans jobs for one backend, and remembers the collections.

    Args:
        backend: collects the tests.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._known: OrderedDict[Job, Verdict] = OrderedDict()
        self._numbers = count()

    def plan(self, jobs: Sequence[Job]) -> list[Planned | Verdict]:
        """Return the jobs with their tests planned; a verdict for a job whose tests the sandbox failed to collect.

        Raises:
            BadTests: the tests of a job cannot be used; the message names the job.
        """
        collections = [_collection(job) for job in jobs]
        needed = {collection for collection in collections if collection is not None}
        known = {collection: self._known[collection] for collection in needed if collection in self._known}
        wanted = sorted(needed - known.keys(), key=lambda job: (job.prelude, job.tests))
        found = known | self._collect(wanted)
        return [
            _plan(job, None if collection is None else found[collection])
            for job, collection in zip(jobs, collections, strict=True)
        ]

    def _collect(self, wanted: Sequence[Job]) -> dict[Job, Verdict]:
        named = {f"collect-{next(self._numbers)}": job for job in wanted}
        planned = [plan_job(replace(job, id=name)) for name, job in named.items()]
        found = {named[verdict.id]: verdict for verdict in self._backend.execute(planned)} if planned else {}
        self._known |= {job: verdict for job, verdict in found.items() if verdict.status is not Status.INFRA_ERROR}
        while len(self._known) > _MOST:
            self._known.popitem(last=False)
        return found


def _collection(job: Job) -> Job | None:
    if job.collect or not may_be_unittest(job.tests, job.prelude) or _classes(job.tests) is None:
        return None
    return Job("", "", job.tests, job.entry_point, job.prelude, limits=job.limits, collect=True)


def _plan(job: Job, found: Verdict | None) -> Planned | Verdict:
    if found is not None and found.status is Status.INFRA_ERROR:
        return replace(found, id=job.id)
    try:
        if found is None:
            return plan_job(job)
        classes = _classes(job.tests)
        if found.error and classes is not _Classes.NONE:
            raise BadTests(f"unittest cannot collect the tests without the program: {found.error}")
        if not found.cases and classes is _Classes.ALL:
            raise BadTests("unittest finds no test that runs; it looks at the classes that the tests' module names")
        return plan_job(job, tuple(case.message for case in found.cases))
    except BadTests as error:
        raise BadTests(f"job {job.id!r}: {error}") from error


class _Classes(Enum):
    """Where the asserts of tests are: none in classes, some, or all; ALL if there are classes and no asserts."""

    NONE, SOME, ALL = range(3)


@lru_cache(maxsize=4096)
def _classes(tests: str) -> _Classes | None:
    """Return which part of the tests is in classes; None if they do not parse, as `plan_job` will say."""
    try:
        tree = ast.parse(tests)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    inside = {node for kind in classes for node in ast.walk(kind)}
    outside = any(isinstance(node, ast.Assert) and node not in inside for node in ast.walk(tree))
    return (_Classes.SOME if outside else _Classes.ALL) if classes else _Classes.NONE
