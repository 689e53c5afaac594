"""A batch of untrusted programs, judged as one cached task.

Promises: the same programs, tests and limits are judged once, in any process and any run; Prefect shows the progress
and afterwards a table of what became of the programs.  A batch with a program that the sandbox itself failed on has no
value: the task is tried again, and then fails, so that nothing half-judged is ever kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline_lib.sandbox import Executor, Job, Status, Verdict, image, judge, wire
from pipeline_lib.sandbox import executor as executor_module
from pipeline_lib.sandbox.make import Section, make_executor
from pipeline_lib.storage import digest
from tasks.caching import CachedTask, Identity
from tasks.progress import Progress
from tasks.stage import artifact_key, show_table

JUDGE = CachedTask("judge programs", executor_module, judge, retries=1)


def judge_programs(section: Section, jobs: Sequence[Job], title: str = "programs") -> list[Verdict]:
    """Return the verdicts of ``jobs`` in input order, from the cache or from the sandbox that ``section`` describes.

    Args:
        section: the ``sandbox`` section of the settings.
        jobs: with different ids.
        title: what the batch is called in the Prefect UI; its artifacts are ``<title>-progress`` and
            ``<title>-statuses``.

    Raises:
        ValueError: two jobs have the same id, or a job is not acceptable.
        SandboxUnavailable: the sandbox cannot run here.
        RuntimeError: the sandbox failed on some programs, twice.
    """
    if len({job.id for job in jobs}) < len(jobs):
        raise ValueError("two jobs of the batch have the same id")

    def compute() -> list[dict[str, Any]]:
        with make_executor(section) as executor, Progress(title, artifact_key(title, "progress")) as progress:
            return _judge(executor, jobs, progress)

    verdicts = [wire.verdict_from_json(verdict) for verdict in JUDGE(_identity(section, jobs), compute, title)]
    show_table(artifact_key(title, "statuses"), _statuses(verdicts), f"{len(verdicts)} programs")
    return verdicts


def _judge(executor: Executor, jobs: Sequence[Job], progress: Progress) -> list[dict[str, Any]]:
    """Return the verdicts as JSON; raises RuntimeError if there is one without a verdict on the program."""
    verdicts: dict[str, Verdict] = {}
    for verdict in executor.stream(jobs):
        verdicts[verdict.id] = verdict
        progress.update(len(verdicts), len(jobs))
    lost = [verdict for verdict in verdicts.values() if verdict.status is Status.INFRA_ERROR]
    if lost:
        raise RuntimeError(f"the sandbox failed on {len(lost)} of {len(jobs)} programs; the first: {lost[0].error}")
    return [wire.verdict_to_json(verdicts[job.id]) for job in jobs]


def _identity(section: Section, jobs: Sequence[Job]) -> Identity:
    """Return what the verdicts depend on: programs, everything else of the jobs, limits, and what runs in the jails."""
    settings = section.model_dump()
    forms = [wire.job_to_json(job) for job in jobs]
    return Identity(
        policy=digest([form.pop("code") for form in forms]),
        problems=digest(forms),
        seed=0,
        settings={"kind": settings["kind"], "limits": settings["limits"], "inside": image.contents_digest()},
    )


def _statuses(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return a row per status that occurs, in the order of `Status`."""
    groups = {status: [verdict for verdict in verdicts if verdict.status is status] for status in Status}
    return [
        {
            "status": status.value,
            "programs": len(found),
            "share": round(len(found) / len(verdicts), 4),
            "cases passed": sum(verdict.passed for verdict in found),
            "cases": sum(verdict.total for verdict in found),
            "CPU seconds": round(sum(verdict.cpu_s for verdict in found), 3),
        }
        for status, found in groups.items()
        if found
    ]
