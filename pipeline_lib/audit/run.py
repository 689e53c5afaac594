"""The entry of the audit: picks the checks for an environment, adds the base policy's, and concludes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pipeline_lib.audit.coding import WANTED as CODING
from pipeline_lib.audit.coding import coding_ladder
from pipeline_lib.audit.philosophers import Habits, audit_philosophers
from pipeline_lib.audit.philosophers_ladder import WANTED as PHILOSOPHERS
from pipeline_lib.audit.preflight import play_base, preflight
from pipeline_lib.audit.result import AuditResult, Check, Rung, conclude
from pipeline_lib.environments.environment import Environment
from pipeline_lib.environments.philosophers.runtime import Philosophers
from pipeline_lib.policies.policy import Team
from pipeline_lib.rollouts.engine import Engine, Sampling
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
    habits = {}
    if team is not None and engine is not None and sampling is not None:
        recorder = Habits(environment) if isinstance(environment, Philosophers) else None
        played = play_base(recorder or environment, problems, team, engine, sampling, group_size, seed)
        if recorder is not None:
            base = preflight(played, *PHILOSOPHERS, idle=("wait_share", "invalid_share"))
            habits = {"base policy's": recorder.logits()}
        else:
            base = preflight(played, *CODING)
        report(1, 1, "base policy")
    rungs: list[Rung]
    checks: list[Check]
    if isinstance(environment, Philosophers):
        rungs, checks = audit_philosophers(environment, problems, seed, habits, report)
    else:
        rungs, checks = coding_ladder(environment, problems, report)
    checks += base
    status, summary = conclude(checks)
    return AuditResult(
        status=status,
        environment=environment_section.kind,
        summary=summary,
        checks=tuple(checks),
        ladder=tuple(rungs),
        identity={
            "environment": digest(environment_section.model_dump(mode="json")),
            "problems": digest(sorted(problem.id for problem in problems)),
            "base_policy": bool(base),
            "seed": seed,
        },
        seconds=time.perf_counter() - started,
    )
