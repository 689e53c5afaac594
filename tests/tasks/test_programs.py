"""A batch of programs as a cached task, on a real Prefect server and in a real sandbox."""

from __future__ import annotations

import json
from typing import Any

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

from pipeline_lib.sandbox import Executor, Job, Status, make
from pipeline_lib.settings.sandbox import ProcessSandbox
from tasks import programs

pytestmark = [pytest.mark.service, pytest.mark.usefixtures("prefect")]
TESTS = "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(2) == 3\n"
SECTION = ProcessSandbox(slots=2)
JOBS = [
    Job("right", "def f(x):\n    return x + 1\n", TESTS, "f"),
    Job("half", "def f(x):\n    return 2\n", TESTS, "f"),
    Job("broken", "def f(x:\n", TESTS, "f"),
    Job("right again", "def f(x):\n    return 1 + x\n", TESTS, "f", visible_tests=TESTS),
]


@flow(name="judge programs", validate_parameters=False)
def judge_programs(section: Any, jobs: Any, title: str = "programs") -> Any:
    return programs.judge_programs(section, jobs, title)


def artifact(key: str) -> Any:
    with get_client(sync_client=True) as client:
        found = client.read_artifacts(artifact_filter=ArtifactFilter(key=ArtifactFilterKey(any_=[key])))
    return found[-1].data


def test_a_batch_is_judged_once_and_shown() -> None:
    verdicts = judge_programs(SECTION, JOBS, "batch one")
    statuses = [Status.PASSED, Status.FAILED, Status.LOAD_ERROR, Status.PASSED]
    assert [(verdict.id, verdict.status) for verdict in verdicts] == [
        (job.id, status) for job, status in zip(JOBS, statuses, strict=True)
    ]
    assert artifact("batch-one-progress") == 100.0
    rows = artifact("batch-one-statuses")
    rows = json.loads(rows) if isinstance(rows, str) else rows
    assert [(row["status"], row["programs"], row["cases passed"], row["cases"]) for row in rows] == [
        ("passed", 2, 4, 4),
        ("failed", 1, 1, 2),
        ("load_error", 1, 0, 2),
    ]
    assert judge_programs(SECTION, JOBS, "batch one") == verdicts  # times and all: it was read


def test_other_limits_or_programs_are_judged_again() -> None:
    first = judge_programs(SECTION, JOBS[:1], "batch two")
    limits = SECTION.limits.model_copy(update={"cpu_s": 3.0})
    assert judge_programs(SECTION.model_copy(update={"limits": limits}), JOBS[:1], "batch two") != first
    assert judge_programs(SECTION, JOBS[1:2], "batch two")[0].status is Status.FAILED


def test_two_jobs_with_the_same_id_are_refused() -> None:
    with pytest.raises(ValueError, match="same id"):
        judge_programs(SECTION, [JOBS[0], JOBS[0]])


def test_a_sandbox_that_fails_leaves_nothing_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jails that are gone for good: no verdict, an error that says so, and a right verdict the next time."""
    job = Job("later", "def f(x):\n    return x + 1\n# later\n", TESTS, "f")

    def closed(section: make.Section) -> Executor:
        executor = make.make_executor(section)
        executor.close()
        return executor

    with monkeypatch.context() as patch:
        patch.setattr(programs, "make_executor", closed)
        with pytest.raises(RuntimeError, match="closed"):
            judge_programs(SECTION, [job], "batch three")
    assert judge_programs(SECTION, [job], "batch three")[0].status is Status.PASSED
