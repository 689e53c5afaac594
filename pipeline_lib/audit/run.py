"""The entry point of the audit: runs the environment's examiner, adds the checks of the base policy, and concludes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

from pipeline_lib.audit.examiner import Examiner, Progress
from pipeline_lib.audit.preflight import Played, preflight
from pipeline_lib.audit.result import AuditResult, Check, Status, conclude, describe_reward, reward_digest
from pipeline_lib.audit.structure import OneAgent, cooperative_structure
from pipeline_lib.environment_api.environment import Environment
from pipeline_lib.environment_api.registry import find
from pipeline_lib.storage import digest


def audit(
    environment_section: Any,
    environment: Environment[Any, Any],
    problems: Sequence[Any],
    play_base: Callable[[Environment[Any, Any]], Played] | None = None,
    progress: Progress | None = None,
    seed: int = 0,
    play_one: Callable[[], OneAgent] | None = None,
) -> AuditResult:
    """Audit a reward on some training problems, before training.

    ``environment_section`` is for the record.  ``play_base`` plays the base policy in an environment; None leaves out
    the checks of the base policy.  ``play_one`` plays one agent instead of the base team on the same problems; None if
    there is no such form.  ``progress`` is called as ``progress(done, total, text)``.  ValueError if there are no
    problems.
    """
    if not problems:
        raise ValueError("the audit needs at least one training problem")
    started = time.perf_counter()
    report = progress or (lambda done, total, text: None)
    examiner: Examiner = find(environment_section.kind).audit()
    base: list[Check] = []
    if play_base is not None:
        played = play_base(examiner.watched(environment, problems))
        base = preflight(played, examiner.wanted, examiner.words, examiner.idle)
        report(1, 1, "base policy")
    beside: list[Check] = []
    if play_base is not None and play_one is not None:
        structure = cooperative_structure(played, play_one(), examiner.wanted, examiner.words)
        beside = [structure] if structure is not None else []
        report(1, 1, "single agent")
    rungs, checks = examiner.examine(environment, problems, seed, report)
    checks += _base_checks(base, checks) + beside
    reward = describe_reward(environment_section)
    status, summary = conclude(checks, reward)
    return AuditResult(
        status=status,
        environment=environment_section.kind,
        reward=reward,
        summary=summary,
        checks=tuple(checks),
        ladder=tuple(rungs),
        identity={
            "environment": digest(environment_section.model_dump(mode="json")),
            "reward": reward_digest(environment_section),
            "problems": digest(sorted(problem.id for problem in problems)),
            "base_policy": bool(base),
            "seed": seed,
        },
        seconds=time.perf_counter() - started,
    )


def _base_checks(base: Sequence[Check], checks: Sequence[Check]) -> list[Check]:
    """Return the checks of the base policy; most failures become warnings if training in miniature ended well.

    Correlations within the base's groups predict its first update only.  Training in miniature from the base's own
    behaviour (``dry_run_base``) shows where all updates lead, so it takes precedence.
    """
    if not any(check.name == "dry_run_base" and check.status is Status.PASS for check in checks):
        return list(base)
    return [
        dataclasses.replace(check, status=Status.WARN)
        if check.status is Status.FAIL and check.name != "base_signal"
        else check
        for check in base
    ]
