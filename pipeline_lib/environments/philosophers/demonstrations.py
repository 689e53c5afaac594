"""Demonstrations for the warm start of philosophers.

Philosophers take the left fork until it is held, then the right one, even if it is not free, which deadlocks.  A share
of the actions are random slips instead, so every observation and every action occurs.  Most of a philosopher's slips
are of one kind, which depends on its number.  This gives no advantage to any philosopher, but a model that all share
learns from the start that the number matters.  Observations are those that occur while such philosophers play training
scenarios.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipeline_lib.environment_api.task import Demonstration
from pipeline_lib.environments.philosophers import text
from pipeline_lib.environments.philosophers.runtime import Board, PhilosophersEnvironment, State
from pipeline_lib.environments.philosophers.scenarios import Scenario
from pipeline_lib.environments.philosophers.scripted import lay_batches
from pipeline_lib.environments.philosophers.table import ACTIONS, LEFT, RIGHT, Table, step
from pipeline_lib.storage import digest

if TYPE_CHECKING:
    from pipeline_lib.environments.philosophers.settings import PhilosophersSettings

#: Share of a philosopher's slips that are of its own kind; at one half, shared weights often never used the number.
OWN_SLIPS = 0.8

#: Scenarios that are played at the same time while prompts in words are written.
TOGETHER = 64

#: What a philosopher tells its neighbours that it will do, by action code.
_ANNOUNCED = ("I wait.", "I take my left fork.", "I take my right fork.", "I release my forks.")


def demonstrate(problems: Sequence[Scenario], count: int, mistakes: float, seed: int) -> list[Demonstration]:
    """Return demonstrations of the ``compact`` prompt, as `Task.demonstrate`; ``mistakes`` are random actions.

    Raises:
        ValueError: there are no scenarios.
    """
    if not problems:
        raise ValueError("there are no scenarios to demonstrate")
    rng = np.random.default_rng(int(digest(["philosophers", seed])[:15], 16))
    demonstrations: list[Demonstration] = []
    while len(demonstrations) < count:
        for batch in lay_batches(problems, sequential=False):
            table = batch.table
            slips = np.array([_numbers(scenario) for scenario in batch.scenarios]).T % 4  # (N, B)
            while not table.done.all():
                actions = _actions(table.left, slips, mistakes, rng)
                demonstrations += _written(table, batch.scenarios, actions, rng)
                table = step(table, actions)
    chosen = rng.permutation(len(demonstrations))[:count]
    return [demonstrations[i] for i in chosen]


def demonstrate_in_words(
    problems: Sequence[Scenario], count: int, mistakes: float, seed: int, settings: PhilosophersSettings
) -> list[Demonstration]:
    """Return demonstrations of the prompts in words, as `Task.demonstrate_later`.

    An answer has the line of the action, and that of the message if there are messages, but no line of thinking.

    Raises:
        ValueError: there are no scenarios.
    """
    if not problems:
        raise ValueError("there are no scenarios to demonstrate")
    rng = np.random.default_rng(int(digest(["philosophers in words", seed])[:15], 16))
    environment = PhilosophersEnvironment(settings)
    demonstrations: list[Demonstration] = []
    while len(demonstrations) < 4 * count:  # then early moves are as frequent as they are in play
        chosen = rng.choice(len(problems), min(TOGETHER, len(problems)), replace=False)
        states = [environment.start(problems[i]) for i in chosen.tolist()]
        while states:
            joint = []
            for state in states:
                answers = _answers(environment, state, mistakes, rng)
                seat = int(rng.choice(list(answers)))
                demonstrations.append(Demonstration(environment.observe(state, seat), answers[seat]))
                joint.append([answers.get(i, "") for i in range(state.scenario.philosophers)])
            states = [outcome.state for outcome in environment.step(states, joint) if not outcome.done]
    kept = rng.permutation(len(demonstrations))[:count]
    return [demonstrations[i] for i in kept]


def _answers(
    environment: PhilosophersEnvironment, state: State, mistakes: float, rng: np.random.Generator
) -> dict[int, str]:
    """Return the answers of those who act, by seat."""
    held = state.table.left[:, state.column]
    codes = _actions(held, np.array(_numbers(state.scenario)) % 4, mistakes, rng).tolist()
    acting = environment.acting(state)
    answers = {}
    for seat in range(state.scenario.philosophers) if acting is None else acting:
        lines = [f"MESSAGE: {_ANNOUNCED[codes[seat]]}"] if environment.settings.message_rounds else []
        if not environment.talking(state):
            lines.append(f"ACTION: {ACTIONS[codes[seat]]}")
        answers[seat] = "\n".join(lines)
    return answers


def _numbers(scenario: Scenario) -> Sequence[int]:
    return scenario.labels or range(scenario.philosophers)


def _actions(
    left: npt.NDArray[np.bool_], slips: npt.NDArray[Any], mistakes: float, rng: np.random.Generator
) -> npt.NDArray[np.int8]:
    """Return action codes by what is held on the left and each philosopher's own slip, arrays of one shape."""
    by_lot = rng.random(left.shape) < mistakes
    habit = np.where(left, RIGHT, LEFT)
    slip = np.where(rng.random(habit.shape) < OWN_SLIPS, slips, rng.integers(0, 4, habit.shape))
    return np.where(by_lot, slip, habit).astype(np.int8)


def _written(
    table: Table,
    scenarios: Sequence[Scenario],
    actions: np.ndarray,
    rng: np.random.Generator,
) -> list[Demonstration]:
    """Return observation and action of one philosopher of every unfinished episode."""
    board = Board(table)
    demonstrations = []
    for column in np.flatnonzero(~table.done).tolist():
        seat = int(rng.integers(table.graph.philosophers))
        labels = scenarios[column].labels
        view = board.view(seat, column, labels[seat] if labels else None)
        if view.eating:
            continue  # eating philosophers do not act
        demonstrations.append(Demonstration(text.compact(view), text.LETTERS[int(actions[seat, column])]))
    return demonstrations
