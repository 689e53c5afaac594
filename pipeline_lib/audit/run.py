"""The entry of the audit: picks the checks for an environment, adds the base policy's, and concludes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pipeline_lib.audit.audited import describe_reward, reward_digest
from pipeline_lib.audit.preflight import play_base, preflight
from pipeline_lib.audit.result import AuditResult, Check, Rung, Status, conclude
from pipeline_lib.environments.coding.audit.ladder import WANTED as CODING
from pipeline_lib.environments.coding.audit.ladder import coding_ladder
from pipeline_lib.environments.coding.audit.search import search_menu
from pipeline_lib.environments.philosophers.audit.dry_run import usual_batch
from pipeline_lib.environments.philosophers.audit.examine import Habits, audit_philosophers
from pipeline_lib.environments.philosophers.audit.ladder import WANTED as PHILOSOPHERS
from pipeline_lib.environments.philosophers.runtime import Philosophers
from pipeline_lib.policies.policy import Team
from pipeline_lib.rollouts.engine import Engine, Sampling
from pipeline_lib.seam.environment import Environment
from pipeline_lib.storage import digest

if TYPE_CHECKING:
    from pipeline_lib.settings.environment import Environment as EnvironmentSection


def audit(
    environment_section: EnvironmentSection,
    environment: Environment[Any, Any],
    problems: Sequence[Any],
    team: Team | None = None,
    engine: Engine | None = None,
    sampling: Sampling | None = None,
    progress: Callable[[int, int, str], None] | None = None,
    group_size: int = 8,
    seed: int = 0,
) -> AuditResult:
    """Ask of a reward, before any training, whether it pays for something nobody wants.

    Args:
        environment_section: the settings of the environment, for the record.
        environment: the environment with the reward in question.
        problems: some training problems, at least one.
        team: the base policies; without a team, engine and sampling the base policy is not looked at.
        engine: samples from the team; its policies must be loaded.
        sampling: the distribution training will sample from.
        progress: called as ``progress(done, total, text)``.
        group_size: episodes of the base policy per problem.
        seed: seed of all draws.

    Raises:
        ValueError: there are no problems.
    """
    if not problems:
        raise ValueError("the audit needs at least one training problem")
    started = time.perf_counter()
    report = progress or (lambda done, total, text: None)
    base: list[Check] = []
    habits = None
    if team is not None and engine is not None and sampling is not None:
        recorder = Habits(environment) if isinstance(environment, Philosophers) else None
        played = play_base(recorder or environment, problems, team, engine, sampling, group_size, seed)
        if recorder is not None:
            base = preflight(played, *PHILOSOPHERS, idle=("wait_share", "invalid_share"))
            usual = usual_batch(problems, recorder.sequential)
            habits = recorder.logits(usual.table.graph.philosophers)
        else:
            base = preflight(played, *CODING)
        report(1, 1, "base policy")
    rungs: list[Rung]
    checks: list[Check]
    if isinstance(environment, Philosophers):
        rungs, checks = audit_philosophers(environment, problems, seed, habits, report)
    else:
        rungs, checks = coding_ladder(environment, problems, report)
        checks.append(search_menu(environment, problems, seed))
        report(1, 1, "training in miniature")
    checks += _beside(base, checks)
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


def _beside(base: Sequence[Check], checks: Sequence[Check]) -> list[Check]:
    """Return the checks of the base policy; the first step does not refuse where the whole way was tried and is fine.

    Correlations within the base's groups say where its first update goes.  Training in miniature from its habits says
    where the updates lead, so if that ends well a first step aside is a warning.
    """
    if not any(check.name == "dry_run_base" and check.status is Status.PASS for check in checks):
        return list(base)
    return [
        dataclasses.replace(check, status=Status.WARN)
        if check.status is Status.FAIL and check.name != "base_signal"
        else check
        for check in base
    ]
