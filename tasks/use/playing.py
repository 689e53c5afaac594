"""A team plays one problem; the episode is displayed while it is played, and returned as data."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pipeline_lib.assembly.memory_check import check_memory, expected_problems
from pipeline_lib.assembly.players import opened as open_player
from pipeline_lib.environment_api.environment import Outcome
from pipeline_lib.play import Player
from pipeline_lib.play.roots import Root, paired
from pipeline_lib.play.watching import Generation, Watcher
from pipeline_lib.rollouts.engine import Action
from pipeline_lib.settings import Params
from tasks.experiment.arms import BASE, PROBLEMS
from tasks.experiment.setups import setup_of
from tasks.use.choosing import Choice, ChoiceError
from tasks.use.episode import AgentAnswer, Played, PlayedTurn, Show


@contextmanager
def opened(params: Params, choice: Choice, problem: Any = None) -> Iterator[Player]:
    """Yield the team in its environment, ready to play, and close both afterwards.

    Raises:
        ChoiceError: the team has no policy for an agent of ``problem``, which it will play, or cannot play it.
        ProblemsError: no problems were prepared.
        SettingsError: there is not the memory for it now.
    """
    check_memory(params, "play", expected_problems(params, PROBLEMS)[0], BASE)
    with open_player(setup_of(params, choice.arm), choice.folder) as player:
        if problem is not None:
            _refuse_unplayable(player, problem)
        yield player


def _refuse_unplayable(player: Player, problem: Any) -> None:
    team = player.team
    for agent in player.environment.agents(problem):
        if team.uses.get(agent, "team") not in team.policies:
            raise ChoiceError(
                f"problem {problem.id} has an agent {agent!r}; agents of the team: {', '.join(team.uses)}"
            )
    try:
        player.environment.start(problem)
    except ValueError as error:
        raise ChoiceError(f"problem {problem.id} cannot be played: {error}") from None


def play(player: Player, title: str, problem: Any, seed: int, show: Show | None = None) -> Played:
    """Play one episode on a problem, and return it; the same seed gives the same episode.

    ``title`` is the displayed name of the team; ``show`` receives the events while the episode is played.
    """
    show = show or Show()
    recording = _Recording(player, Played(title, problem.id, attempts=player.environment.retries), show)
    replace(player, watcher=recording).play(paired([problem], 1, seed))
    show.ended(recording.played)
    return recording.played


class _Recording(Watcher):
    """Records an episode, and forwards its events ordered by agent: one agent after the other.

    The actions of one round may be sampled at the same time; the events of later agents are held back.
    """

    def __init__(self, player: Player, played: Played, show: Show) -> None:
        self._environment, self.played, self._show = player.environment, played, show
        self._turns: dict[int, PlayedTurn] = {}
        self._open: list[Generation] = []
        self._waiting: dict[int, list[Callable[[], None]]] = {}

    def prompted(self, generation: Generation) -> None:
        self._open.append(generation)
        self._waiting[id(generation)] = []
        self._forward(generation, lambda: self._show.prompted(generation))

    def wrote(self, generation: Generation, text: str) -> None:
        self._forward(generation, lambda: self._show.wrote(generation, text))

    def finished(self, generation: Generation, action: Action) -> None:
        answer = AgentAnswer(
            generation.agent,
            generation.round,
            generation.prompt,
            action.text,
            len(action.ids),
            action.finish,
            generation.tool,
        )
        self._turn(generation.turn).said.append(answer)
        self._forward(generation, lambda: self._show.finished(generation, answer))
        if self._open and self._open[0] is generation:
            self._close()
        else:
            self._waiting[id(generation)].append(self._close)

    def judged(self, root: Root, turn: int, joint_action: Sequence[str], outcome: Outcome[Any]) -> None:
        played = self._turn(turn)
        played.exhibit = self._environment.exhibit(outcome.state, joint_action)
        played.reward, played.terms = outcome.reward, dict(outcome.terms)
        played.metrics, played.details = dict(outcome.metrics), dict(outcome.details)
        self._show.turned(turn, played)

    def _turn(self, number: int) -> PlayedTurn:
        if number not in self._turns:
            self._turns[number] = PlayedTurn()
            self.played.turns.append(self._turns[number])
        return self._turns[number]

    def _forward(self, generation: Generation, event: Callable[[], None]) -> None:
        if self._open and self._open[0] is generation:
            event()
        else:
            self._waiting[id(generation)].append(event)

    def _close(self) -> None:
        """End the generation that is displayed, and forward the events of the next one that were held back."""
        del self._waiting[id(self._open.pop(0))]
        if self._open:
            waiting = self._waiting[id(self._open[0])]
            while waiting:
                waiting.pop(0)()


def typed_on_terminal() -> str:
    """Return the text on standard input, until its end (Ctrl-D)."""
    if sys.stdin.isatty():
        sys.stderr.write("Type the problem; Ctrl-D on a line of its own ends it.\n")
    return sys.stdin.read()
