"""The audit of a reward, with the team that training would start from."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_lib.assembly.teams import base_team, sampling_of
from pipeline_lib.audit.preflight import Played
from pipeline_lib.audit.run import audit
from pipeline_lib.audit.structure import OneAgent
from pipeline_lib.environment_api.registry import find
from pipeline_lib.environments.make import make_environment
from pipeline_lib.play import Player, groups
from pipeline_lib.play.fixing import Fixed, FixedActions
from pipeline_lib.policies.threads import right_threads
from pipeline_lib.rollouts import make_engine

if TYPE_CHECKING:
    from pipeline_lib.audit.examiner import Progress
    from pipeline_lib.audit.result import AuditResult
    from pipeline_lib.environment_api.environment import Environment
    from pipeline_lib.protocols import Protocol
    from pipeline_lib.settings import Params


def audit_team(
    params: Params,
    section: Any,
    protocol: Protocol,
    base: Path,
    problems: Sequence[Any],
    progress: Progress | None = None,
) -> AuditResult:
    """Audit the reward of an environment, from the base policy on.

    Args:
        params: the settings.
        section: the environment with the reward in question.
        protocol: how the team answers.
        base: folder of the base policy.
        problems: training problems, of which the first ``audit.problems`` are tried.
        progress: called as ``progress(done, total, text)``.

    Raises:
        ValueError: there are no problems.
        PolicyError: the base was made from other settings.
    """
    tried = problems[: params.audit.problems]
    size, seed = params.audit.group_size, params.audit.seed
    single_form = find(section.kind).single_agent(section)
    with (
        contextlib.closing(make_environment(section, params.sandbox)) as environment,
        contextlib.closing(make_engine(params.rollouts, params.policy)) as engine,
        contextlib.ExitStack() as running,
    ):
        team = base_team(params, base, environment, tried)
        running.enter_context(right_threads(team))
        engine.load(team.sampled())

        def play_base(watched: Environment[Any, Any]) -> Played:
            player = Player(watched, team, engine, sampling_of(params), protocol)
            return Played.of(player.play(groups(tried, size, seed)), size)

        def play_one() -> OneAgent:
            alone = each_alone(Player(environment, team, engine, sampling_of(params), protocol), tried, size, seed)
            with contextlib.closing(make_environment(single_form, params.sandbox)) as other:
                single = base_team(params, base, other, tried)
                engine.load(single.sampled())
                playing = Player(other, single, engine, sampling_of(params))
                played = Played.of(playing.play(groups(tried, size, seed)), size)
            return OneAgent(alone, played, all(environment.divided(problem) for problem in tried))

        compared = single_form is not None and len(environment.agents(tried[0])) > 1
        return audit(section, environment, tried, play_base, progress, seed, play_one if compared else None)


def each_alone(player: Player, problems: Sequence[Any], size: int, seed: int) -> dict[str, Played]:
    """Return groups of each agent of a team alone, by name: the others' actions are the environment's stub.

    Args:
        player: the team in its environment.
        problems: a group is played on each.
        size: episodes of a group.
        seed: of the random draws; they are those of the whole team's groups with this seed.
    """
    agents = player.environment.agents
    fixed = replace(player, environment=FixedActions(player.environment))
    found = {}
    for agent in agents(problems[0]):
        alone = [
            Fixed(problem, frozenset(number for number, name in enumerate(agents(problem)) if name != agent))
            for problem in problems
        ]
        found[agent] = Played.of(fixed.play(groups(alone, size, seed)), size)
    return found
