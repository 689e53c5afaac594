"""The audit of a reward, with the team that training would start from."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pipeline_lib.assembly.teams import Setup
from pipeline_lib.audit.examiner import Progress
from pipeline_lib.audit.result import AuditResult
from pipeline_lib.audit.run import OneAgent, Played, audit
from pipeline_lib.environment_api.environment import Environment
from pipeline_lib.environment_api.registry import find
from pipeline_lib.play import Player, groups
from pipeline_lib.play.fixing import Fixed, FixedActions
from pipeline_lib.policies.computing import right_threads
from pipeline_lib.problems.splits import load_split
from pipeline_lib.protocols import Decentralised

#: What playing the base policy takes beside the parts of an examiner (`Examiner.parts`), for the progress.
BASE_PLAY = 1.0


def audit_team(setup: Setup, progress: Progress | None = None) -> AuditResult:
    """Audit the reward of an environment, from the base policy on; the first ``audit.problems`` are tried.

    Args:
        setup: the team, and the environment with the reward in question.
        progress: called as ``progress(done, total, text)``.

    Raises:
        ProblemsError, PolicyError: problems or base are missing, or not what the settings say.
    """
    settings = setup.params.audit
    tried = load_split(setup.problems, "train")[: settings.problems]
    single_form = find(setup.section.kind).single_agent(setup.section)
    with (
        contextlib.closing(setup.environment()) as environment,
        contextlib.closing(setup.engine()) as engine,
        contextlib.ExitStack() as running,
    ):
        team = setup.team(environment, tried)
        agents = environment.agents(tried[0])
        compared = single_form is not None and len(agents) > 1
        running.enter_context(right_threads(team))
        engine.load(team.sampled())

        def report(done: int, text: str) -> None:
            if progress is not None:  # of the team, each of its agents alone, and the single agent
                progress(done, 2 + len(agents) if compared else 1, text)

        def played(player: Player) -> Played:
            return Played.of(player.play(groups(tried, settings.group_size, settings.seed)), settings.group_size)

        def play_base(watched: Environment[Any, Any]) -> Played:
            report(0, "base policy")
            base = played(setup.player(watched, team, engine))
            report(1, "base policy")
            return base

        def play_one() -> OneAgent:
            player, alone = setup.player(environment, team, engine), {}
            for number, agent in enumerate(agents):
                alone[agent] = agent_alone(player, number, tried, settings.group_size, settings.seed)
                report(2 + number, f"{agent} alone")
            single = replace(setup, section=single_form, protocol=Decentralised())
            with contextlib.closing(single.environment()) as other:
                one = single.team(other, tried)
                engine.load(one.sampled())
                single_played = played(single.player(other, one, engine))
            report(2 + len(agents), "single agent")
            return OneAgent(alone, single_played, all(environment.divided(problem) for problem in tried))

        return audit(
            setup.section, environment, tried, play_base, progress, settings.seed, play_one if compared else None
        )


def agent_alone(player: Player, number: int, problems: Sequence[Any], size: int, seed: int) -> Played:
    """Return groups of one agent of a team alone: the others' actions are the environment's stub.

    A group of ``size`` episodes is played on each problem; random draws are those of the whole team's groups with this
    seed.  ``number`` is the agent's place in the team of the first problem.
    """
    agents = player.environment.agents
    name = agents(problems[0])[number]
    alone = [
        Fixed(problem, frozenset(place for place, other in enumerate(agents(problem)) if other != name))
        for problem in problems
    ]
    fixed = replace(player, environment=FixedActions(player.environment))
    return Played.of(fixed.play(groups(alone, size, seed)), size)
