"""A team that was chosen, with its weights in memory, ready to play."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pipeline_lib.assembly.players import opened as open_team
from pipeline_lib.play import Player
from pipeline_lib.problems.splits import load_split
from tasks.experiment.arms import BASE, PROBLEMS, environment_section
from tasks.experiment.protocols import protocol_of
from tasks.use.choosing import Choice, ChoiceError

if TYPE_CHECKING:
    from pipeline_lib.settings import Params


@contextmanager
def opened(params: Params, choice: Choice, problem: Any = None) -> Iterator[Player]:
    """Yield the team in its environment, ready to play, and close both afterwards.

    Args:
        params: the settings.
        choice: which team.
        problem: the problem that it will play, if known; its agents must be the team's.

    Raises:
        ChoiceError: the team has no policy for an agent of the problem.
        ProblemsError: no problems were prepared.
    """
    section, protocol = environment_section(params, choice.arm), protocol_of(params, choice.arm)
    with open_team(params, section, protocol, BASE, load_split(PROBLEMS, "train"), choice.folder) as player:
        team = player.team
        for agent in player.environment.agents(problem) if problem is not None else ():
            if team.uses.get(agent, "team") not in team.policies:
                raise ChoiceError(
                    f"problem {problem.id} has an agent {agent!r}; agents of the team: {', '.join(team.uses)}"
                )
        yield player
