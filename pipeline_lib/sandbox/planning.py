"""Plan the tests of jobs; those that use `unittest` are collected first, by a job of its own.

A collection runs where tests run, because they may need what is installed there, and runs no program: the program's
names are blank.  So the number of cases follows from the tests alone, and is known before any program runs.
"""

from __future__ import annotations

import ast
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum
from functools import lru_cache
from itertools import count

from pipeline_lib.sandbox.backend import Backend
from pipeline_lib.sandbox.jobs import Job, Status, Verdict
from pipeline_lib.sandbox.tests_source import BadTests, Planned, plan_job
from pipeline_lib.sandbox.unittest_source import may_be_unittest

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
        needed = {collection for job in jobs for collection in _collections(job)}
        known = {collection: self._known[collection] for collection in needed if collection in self._known}
        wanted = sorted(needed - known.keys(), key=lambda job: (job.prelude, job.tests))
        found = known | self._collect(wanted)
        return [_plan(job, found) for job in jobs]

    def _collect(self, wanted: Sequence[Job]) -> dict[Job, Verdict]:
        """Return the verdicts of collections by their job, and remember them."""
        named = {f"collect-{next(self._numbers)}": job for job in wanted}
        planned = [plan_job(replace(job, id=name)) for name, job in named.items()]
        found = {named[verdict.id]: verdict for verdict in self._backend.execute(planned)} if planned else {}
        self._known |= {job: verdict for job, verdict in found.items() if verdict.status is not Status.INFRA_ERROR}
        while len(self._known) > _MOST:
            self._known.popitem(last=False)
        return found


def _collections(job: Job) -> Iterator[Job]:
    """Yield the jobs that collect the tests of a job."""
    if job.collect:
        return
    for tests in (job.tests, job.visible_tests):
        if may_be_unittest(tests, job.prelude) and _classes(tests) is not None:
            yield Job("", "", tests, job.entry_point, job.prelude, limits=job.limits, collect=True)


def _plan(job: Job, found: dict[Job, Verdict]) -> Planned | Verdict:
    by_source = {collection.tests: found[collection] for collection in _collections(job)}
    for verdict in by_source.values():
        if verdict.status is Status.INFRA_ERROR:
            return replace(verdict, id=job.id)
    try:
        for tests, verdict in by_source.items():
            classes = _classes(tests)
            if verdict.error and classes is not _Classes.NONE:
                raise BadTests(f"unittest cannot collect the tests without the program: {verdict.error}")
            if not verdict.cases and classes is _Classes.ALL:
                raise BadTests("unittest finds no test that runs; it looks at the classes that the tests' module names")
        return plan_job(job, lambda tests: _names(by_source.get(tests)))
    except BadTests as error:
        raise BadTests(f"job {job.id!r}: {error}") from error


def _names(collection: Verdict | None) -> tuple[str, ...]:
    return () if collection is None else tuple(case.message for case in collection.cases)


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
