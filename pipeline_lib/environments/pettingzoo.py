"""Any parallel game of PettingZoo with a finite choice of actions: observations become text, texts become actions.

All agents act at the same time.  The joint reward of a turn is the mean of what the game pays its agents.  Chance in a
game follows from the seed of its problem, so a state is the seed with the joint actions since the start, and is reached
again by playing them again.

The package `pettingzoo` is not installed by default, nor are packages with games of its interface, such as `mpe2`.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from pipeline_lib.audit.examiner import ScriptedExaminer, Teams
from pipeline_lib.environment_api.environment import Environment, Exhibit, Outcome
from pipeline_lib.environment_api.metrics import Metric, behaviour
from pipeline_lib.environment_api.task import Demonstration, TeamTask, check_steps
from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.settings.base import CodeName, Section
from pipeline_lib.settings.environment import EnvironmentSection
from pipeline_lib.settings.problems import PROMPT, Prompt, SplitSizes
from pipeline_lib.storage import digest

INSTALL = "pip install 'symposium[pettingzoo]'"

#: States whose games are kept; others are played again from their start when they go on.
_KEPT = 1024

#: Joint actions since the start: per turn, the action of every agent.
Moves = tuple[tuple[int, ...], ...]

#: Joint actions among which the audit looks for the best one that is repeated in every turn.
_TRIED = 64


class PettingZooSettings(EnvironmentSection):
    """A game played by its agents, or by one that sees and does everything."""

    kind: Literal["pettingzoo"] = "pettingzoo"
    team: Literal["agents", "single"] = Field("agents", description="single: one agent acts for all of them")
    turns: int = Field(4, ge=1, description="an episode ends after so many turns, if the game does not end before")
    rewards: tuple[float, float] = Field(
        (-2.0, 0.0), description="least and greatest joint reward of a turn; what the game pays beyond them is cut off"
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.rewards[0] < self.rewards[1]:
            raise ValueError(f"rewards ({list(self.rewards)}) must be a least and a greatest joint reward of a turn")
        return self


class PettingZooProblems(Section):
    """Starts of one game, each with its own seed."""

    kind: Literal["pettingzoo"] = "pettingzoo"
    game: CodeName = Field(
        "mpe2.simple_speaker_listener_v4:parallel_env",
        pattern=r"^[\w.]+:\w+$",
        description="'package.module:function' that makes a game with PettingZoo's parallel interface",
    )
    options: dict[str, Any] = Field({}, description="arguments of that function")
    seed: int = Field(7, ge=0, description="seed from which the seeds of the starts are drawn")
    prompt: Prompt = PROMPT
    sizes: SplitSizes = SplitSizes(train=256, validation=64, test=128)


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a game."""

    game: str  #: where it comes from
    options: str  #: of the game, JSON
    seed: int  #: of all chance in it
    plain: bool  #: the agents are prompted in plain English

    @property
    def id(self) -> str:
        return f"start/{self.seed}"

    @property
    def family(self) -> str:
        """Return the id: starts are drawn independently."""
        return self.id

    @property
    def content_hash(self) -> str:
        return digest([self.game, self.options, self.seed])

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "game": self.game, "options": self.options, "seed": self.seed, "plain": self.plain}


# ---- The game.


def make_game(name: str, options: str) -> Any:
    """Make a game.

    Args:
        name: ``package.module:function``.
        options: arguments, as JSON.

    Raises:
        ProblemsError: there is no such function, it does not take these arguments, or an agent's actions are no finite
            choice.
    """
    module, _, function = name.partition(":")
    try:
        game = getattr(importlib.import_module(module), function)(**json.loads(options))
    except ImportError as error:
        raise ProblemsError(f"problems.game: cannot import {module} ({error}); {INSTALL}") from error
    except Exception as error:  # games check their arguments in many ways
        raise ProblemsError(f"problems.game: cannot make {name} with problems.options {options}: {error!r}") from error
    if not hasattr(game, "possible_agents") or hasattr(game, "agent_iter"):
        raise ProblemsError(f"problems.game: {name} does not make a game with PettingZoo's parallel interface")
    for agent in game.possible_agents:
        if not all(hasattr(game.action_space(agent), name) for name in ("n", "start")):
            raise ProblemsError(
                f"problems.game: the actions of {agent} in {name} are {game.action_space(agent)}, not Discrete: a "
                "text cannot choose among them (some games have an option such as continuous_actions)"
            )
    return game


@functools.cache
def actions_of(name: str, options: str) -> dict[str, range]:
    """Return the actions of every agent of a game, in acting order; raises as `make_game`."""
    game = make_game(name, options)
    spaces = {str(agent): game.action_space(agent) for agent in game.possible_agents}
    game.close()
    return {agent: range(int(space.start), int(space.start + space.n)) for agent, space in spaces.items()}


def described(observation: Any) -> str:
    """Return an observation as text: numbers with two decimals, a dictionary with its keys, a list in its order."""
    if isinstance(observation, Mapping):
        return ", ".join(f"{key} {described(value)}" for key, value in observation.items())
    if isinstance(observation, list | tuple):
        return " ".join(described(value) for value in observation)
    numbers = np.asarray(observation)
    if not np.issubdtype(numbers.dtype, np.number) and numbers.dtype != bool:
        return str(observation)
    if np.issubdtype(numbers.dtype, np.floating):
        return " ".join(f"{value + 0.0:.2f}".replace("-0.00", "0.00") for value in numbers.ravel())
    return " ".join(str(int(value)) for value in numbers.ravel())


def chosen(text: str, actions: range) -> int | None:
    """Return the action that a text chooses, its first whole number; None if that is none of the actions."""
    found = re.search(r"-?\d+", text)
    return int(found[0]) if found and len(found[0]) < 9 and int(found[0]) in actions else None


@dataclass(frozen=True, slots=True)
class Moment:
    """A state: the start, and the joint actions since then."""

    start: Start
    moves: Moves  #: per turn, the action of every agent, in acting order
    seen: Mapping[str, str]  #: by agent that is still in the game, its observation as text
    earned: float  #: joint reward up to now, cut off as settings say
    unreadable: int  #: actions up to now that were none of the agent's


class ZooGame(Environment[Start, Moment]):
    """A game played from text."""

    def __init__(self, settings: PettingZooSettings) -> None:
        self.settings = settings
        self.turns, self.reward_bounds = settings.turns, settings.rewards
        self._reached: OrderedDict[tuple[Start, Moves], list[Any]] = OrderedDict()
        self._ended: dict[tuple[str, str], list[Any]] = {}
        self._first: dict[Start, Mapping[str, str]] = {}

    def agents(self, problem: Start) -> tuple[str, ...]:
        return ("single",) if self.settings.team == "single" else tuple(actions_of(problem.game, problem.options))

    def start(self, problem: Start, seed: int = 0) -> Moment:
        if problem not in self._first:
            game, observations = self._started(problem)
            self._first[problem] = _texts(observations)
            self._end(problem, game)
        return Moment(problem, (), self._first[problem], 0.0, 0)

    def acting(self, state: Moment) -> Sequence[int] | None:
        if self.settings.team == "single":
            return None
        return [number for number, agent in enumerate(self.agents(state.start)) if agent in state.seen]

    def observe(self, state: Moment, agent: int) -> str:
        start = state.start
        if self.settings.team == "single":
            return prompt(start, tuple(state.seen), state.seen)
        return prompt(start, (self.agents(start)[agent],), state.seen)

    def step(self, states: Sequence[Moment], joint_actions: Sequence[Sequence[str]]) -> list[Outcome[Moment]]:
        return [self._stepped(state, actions) for state, actions in zip(states, joint_actions, strict=True)]

    def _stepped(self, state: Moment, texts: Sequence[str]) -> Outcome[Moment]:
        start, actions = state.start, actions_of(state.start.game, state.start.options)
        written = dict(zip(actions, texts, strict=False))
        if self.settings.team == "single":
            written = _lines(texts[0], tuple(state.seen))
        read = {agent: chosen(written.get(agent, ""), actions[agent]) for agent in state.seen}
        # An action that cannot be read, or of an agent that has left the game, is the first one.
        move = tuple(legal.start if (action := read.get(agent)) is None else action for agent, legal in actions.items())
        game = self._take(start, state.moves)
        played = {agent: action for agent, action in zip(actions, move, strict=True) if agent in state.seen}
        observations, rewards, _, _, _ = game.step(played)
        paid = float(np.mean([float(rewards.get(agent, 0.0)) for agent in actions]))
        reward = min(self.reward_bounds[1], max(self.reward_bounds[0], paid))
        after = Moment(
            start,
            (*state.moves, move),
            {agent: text for agent, text in _texts(observations).items() if agent in game.agents},
            state.earned + reward,
            state.unreadable + sum(action is None for action in read.values()),
        )
        done = not after.seen or len(after.moves) >= self.turns
        if done:
            self._end(start, game)
        else:
            self._keep(start, after.moves, game)
        return Outcome(reward, {"game": reward}, self._measured(after), after, done)

    def _measured(self, state: Moment) -> dict[str, float]:
        least, greatest = self.episode_bounds
        return {
            "game_score": (state.earned - least) / (greatest - least),
            "unreadable_actions": state.unreadable / (len(state.moves) * len(state.moves[0])),
            "turns_played": len(state.moves) / self.turns,
        }

    def _started(self, start: Start) -> tuple[Any, Mapping[Any, Any]]:
        """Return a game at its start, with the first observations: one that has ended, or a new one."""
        ended = self._ended.setdefault((start.game, start.options), [])
        game = ended.pop() if ended else make_game(start.game, start.options)
        observations, _ = game.reset(seed=start.seed)
        return game, observations

    def _end(self, start: Start, game: Any) -> None:
        self._ended.setdefault((start.game, start.options), []).append(game)

    def _keep(self, start: Start, moves: Moves, game: Any) -> None:
        self._reached.setdefault((start, moves), []).append(game)
        self._reached.move_to_end((start, moves))
        if len(self._reached) > _KEPT:
            (other, _), games = self._reached.popitem(last=False)
            for unused in games:
                self._end(other, unused)

    def _take(self, start: Start, moves: Moves) -> Any:
        """Return a game in a state, which nothing else holds."""
        games = self._reached.get((start, moves), [])
        if games:
            game = games.pop()
            if not games:
                del self._reached[start, moves]
            return game
        game, _ = self._started(start)
        for move in moves:
            game.step({agent: move[game.possible_agents.index(agent)] for agent in game.agents})
        return game

    def exhibit(self, state: Moment, actions: Sequence[str]) -> Exhibit:
        lines = [
            f"{agent}: {text.strip()}" for agent, text in zip(self.agents(state.start), actions, strict=True) if text
        ]
        return Exhibit("\n".join([*lines, f"joint reward so far: {state.earned:.2f}"]))

    def close(self) -> None:
        for game in itertools.chain(*self._reached.values(), *self._ended.values()):
            game.close()
        self._reached.clear()
        self._ended.clear()


def _texts(observations: Mapping[Any, Any]) -> dict[str, str]:
    return {str(agent): described(observation) for agent, observation in observations.items()}


def _lines(text: str, agents: Sequence[str]) -> dict[str, str]:
    """Return what a single agent wrote for each agent: the line with its name, and lines without one in their order."""
    named: dict[str, str] = {}
    rest = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, colon, said = line.partition(":")
        if colon and (name := name.strip()) in agents:
            named.setdefault(name, said)
        else:
            rest.append(line)
    return named | dict(zip((agent for agent in agents if agent not in named), rest, strict=False))


def prompt(start: Start, agents: Sequence[str], seen: Mapping[str, str]) -> str:
    """Return the prompt of who acts for some agents: their observations, and how to choose actions."""
    if not start.plain:
        return "\n".join([*(f"{agent} {seen.get(agent, '')}" for agent in agents), ">"])
    legal = actions_of(start.game, start.options)
    name = start.game.split(":")[0].rpartition(".")[2].replace("_", " ")
    told = [f"{agent} observes: {seen.get(agent, '')}" for agent in agents]
    choices = [f"{agent} chooses a whole number from {legal[agent][0]} to {legal[agent][-1]}." for agent in agents]
    how = "Answer with the number only." if len(agents) == 1 else "Answer with one line per agent, as 'name: number'."
    rules = f"Agents play the game {name} together, and are paid together."
    return "\n".join([rules, *told, *choices, how, ""])


# ---- The audit, and the task.


class ZooExaminer(ScriptedExaminer):
    """The best action that is repeated in every turn, which differs from start to start, and teams that do not look."""

    wanted, words = "game_score", "score"
    idle = ("unreadable_actions",)

    def teams(self, environment: ZooGame, problem: Start, other: Start) -> Teams:
        legal = actions_of(problem.game, problem.options)
        joint = list(itertools.product(*legal.values()))
        tried = joint if len(joint) <= _TRIED else Random(0).sample(joint, _TRIED)
        best = max(tried, key=lambda move: _repeated(environment, problem, move))
        state, count = environment.start(problem), len(environment.agents(problem))
        unmoved = {
            f"always_{number}": ("degenerate", _written(environment, [min(number, x[-1]) for x in legal.values()]))
            for number in range(max(len(x) for x in legal.values()))
        }
        return {
            "best_repeated": ("working", _written(environment, best)),
            **unmoved,
            "empty": ("degenerate", [""] * count),
            "copied_prompt": ("degenerate", [environment.observe(state, agent) for agent in range(count)]),
        }


def _written(environment: ZooGame, move: Sequence[int]) -> list[str]:
    """Return a joint action as the texts of a team, or of the single agent."""
    texts = [str(action) for action in move]
    return ["\n".join(texts)] if environment.settings.team == "single" else texts


def _repeated(environment: ZooGame, problem: Start, move: Sequence[int]) -> float:
    """Return the reward of an episode with the same joint action in every turn."""
    state, done, texts = environment.start(problem), False, _written(environment, move)
    while not done:
        (outcome,) = environment.step([state], [texts])
        state, done = outcome.state, outcome.done
    return state.earned


METRICS = {
    "game_score": Metric("score", "reward of the episode, from 0 (least) to 1 (greatest)", share=True),
    "unreadable_actions": behaviour("unreadable actions", "share of the actions that are none", better="lower"),
    "turns_played": behaviour("turns played", "as a share of the most"),
}


class PettingZooTask(TeamTask):
    """A team, or one agent for all of them, plays a game."""

    settings = PettingZooSettings
    problems = (PettingZooProblems,)
    measures = METRICS
    primary = "game_score"
    examiner = ZooExaminer
    packages = ("pettingzoo",)
    guards = ({"metric": "unreadable_actions", "better": "lower", "slack": 0.05},)
    retries = False

    def make_problems(self, settings: PettingZooProblems) -> Mapping[str, Sequence[Start]]:
        """Return starts with different seeds; raises ProblemsError as `make_game`."""
        options = json.dumps(settings.options, sort_keys=True)
        make_game(settings.game, options).close()
        sizes = settings.sizes.model_dump()
        seeds = iter(Random(digest(["pettingzoo", settings.seed])).sample(range(2**31), sum(sizes.values())))
        return {
            split: [Start(settings.game, options, next(seeds), settings.prompt == "plain") for _ in range(size)]
            for split, size in sizes.items()
        }

    def check_problems(self, problems: Sequence[Start], executor: Callable[[], Any]) -> None:
        """Check that the same seed and actions lead to the same observations; raises ProblemsError."""
        first, second = (list(_random_play(problems[0], Random(0), 10)) for _ in range(2))
        if first != second:
            raise ProblemsError(
                f"problems.game: {problems[0].game} goes on differently after the same seed and the same actions, so "
                "joint actions cannot be compared; seed its chance in reset()"
            )

    def read_problem(self, row: Mapping[str, Any]) -> Start:
        return Start(**{key: value for key, value in row.items() if key != "id"})

    def prompts(self, problems: Sequence[Start]) -> list[str]:
        rng = Random(0)
        return [text for problem in problems for text, _ in _random_play(problem, rng, 10)]

    def demonstrate(self, problems: Sequence[Start], count: int, mistakes: float, seed: int) -> list[Demonstration]:
        """Return random actions on what is observed in random play: they teach what an action looks like, no more."""
        rng = Random(digest(["pettingzoo", seed, count]))
        shown: list[Demonstration] = []
        while len(shown) < count:
            shown += [Demonstration(*pair) for pair in _random_play(rng.choice(problems), rng, 10)]
        return rng.sample(shown, count)

    def make(self, settings: PettingZooSettings, executor: Callable[[], Any]) -> ZooGame:
        return ZooGame(settings)

    def unsuitable(self, protocol: str, settings: PettingZooSettings) -> str:
        """Return why a protocol does not suit: actions are numbers, and texts of others mean nothing."""
        return "the texts of its agents are numbers, from which others learn nothing"

    def agent_names(self, params: Any) -> Sequence[str]:
        if params.environment.team == "single":
            return ("single",)
        return tuple(actions_of(params.problems.game, json.dumps(params.problems.options, sort_keys=True)))

    def check(self, params: Any) -> None:
        check_steps(params)
        self.agent_names(params)

    def terms(self, settings: PettingZooSettings) -> Mapping[str, str]:
        return {"game": "the mean of what the game pays its agents"}


def _random_play(problem: Start, rng: Random, turns: int) -> list[tuple[str, str]]:
    """Return prompts and random actions of an episode, for every agent and for the single one."""
    legal, environment = actions_of(problem.game, problem.options), ZooGame(PettingZooSettings(turns=turns))
    state, done, shown = environment.start(problem), False, []
    while not done:
        move = {agent: str(rng.choice(actions)) for agent, actions in legal.items()}
        shown += [(prompt(problem, (agent,), state.seen), move[agent]) for agent in state.seen]
        together = "\n".join(f"{agent}: {move[agent]}" for agent in state.seen)
        shown.append((prompt(problem, tuple(state.seen), state.seen), together))
        (outcome,) = environment.step([state], [list(move.values())])
        state, done = outcome.state, outcome.done
    environment.close()
    return shown
