"""Dining philosophers in the form of an `Environment`: one turn is one step of the table, or one round of messages.

The reward of a turn is the increment of the reward of the whole episode (`rewards`), so the turns of an episode sum
up to it.  In a message round nothing moves and nothing is earned.  In sequential mode only the mover acts.

A state is a column of a table that many episodes share, and its messages and memory.  Thousands of states step
together: states that came out of one step share one table, and a step gathers the columns
it needs.  States are values; several continuations of one state may be played.  Nothing here is random: chance is in
the scenario and in the policies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline_lib.environment_api.environment import Environment, Exhibit, Outcome
from pipeline_lib.environment_api.reward import custom_reward
from pipeline_lib.environments.philosophers import text
from pipeline_lib.environments.philosophers.optimum import most_meals
from pipeline_lib.environments.philosophers.rewards import Reward, SoundReward, SumReward, metrics, summarise
from pipeline_lib.environments.philosophers.scenarios import Scenario
from pipeline_lib.environments.philosophers.table import WAIT, Table, concatenate, make_table
from pipeline_lib.environments.philosophers.table import step as move
from pipeline_lib.environments.philosophers.text import Reply, View, intent, read_reply

if TYPE_CHECKING:
    from pipeline_lib.environments.philosophers.settings import MealsReward, PhilosophersSettings


class Board:
    """A table with access to one philosopher at a time; its arrays are converted to Python values once."""

    def __init__(self, table: Table) -> None:
        self.table = table

    @cached_property
    def _lists(self) -> tuple[list[list[int]], ...]:
        table = self.table
        taken = table.taken()
        left = np.where(table.left, 0, 1 + taken[table.graph.left_index])
        right = np.where(table.right, 0, 1 + taken[table.graph.right_index])
        return tuple(array.tolist() for array in (left, right, table.eating, table.meals, table.idle))

    def view(self, seat: int, column: int, label: int | None) -> View:
        """Return what the philosopher on ``seat`` sees in episode ``column``."""
        left, right, eating, meals, idle = (values[seat][column] for values in self._lists)
        return View(label, len(self._lists[0]), _FORK[left], _FORK[right], eating > 0, meals, idle)

    def hungry(self, column: int) -> tuple[int, ...]:
        """Return who is not eating in episode ``column``; never empty, because neighbours share forks."""
        return tuple(seat for seat, left in enumerate(self._lists[2]) if left[column] == 0)


_FORK = ("mine", "free", "taken")


@dataclass(frozen=True, slots=True)
class State:
    """One episode at one moment."""

    scenario: Scenario  #: its scenario
    board: Board  #: the table this episode is a column of
    column: int  #: index of the column
    optimum: int  #: most meals possible, exact or an upper bound
    earned: Mapping[str, float]  #: the reward terms of the episode so far
    talks: int = 0  #: message rounds already done before the next action
    said: tuple[str, ...] = ()  #: last message of each philosopher
    past: tuple[tuple[str, ...], ...] = ()  #: earlier snapshots, oldest first, one text per philosopher
    #: Messages with an intent so far, and those of them that were followed by this action.
    announced: tuple[int, int] = (0, 0)
    cut: int = 0  #: messages that were longer than the limit

    @property
    def table(self) -> Table:
        return self.board.table


def lay_table(scenario: Scenario, sequential: bool, deadlock_ends: bool = True) -> Table:
    """Return the table of one scenario at time 0."""
    return make_table(
        scenario.plan,
        [scenario.priority],
        scenario.horizon,
        scenario.eating_time,
        [scenario.holdings],
        sequential,
        deadlock_ends,
    )


@lru_cache(maxsize=65536)
def best_meals(scenario: Scenario, sequential: bool) -> tuple[int, bool]:
    """Return the most meals possible in a scenario, and whether that is exact rather than an upper bound."""
    order = tuple(int(i) for i in np.argsort(scenario.priority)) if sequential else ()
    return most_meals(scenario.plan, scenario.horizon, scenario.eating_time, scenario.holdings, order)


def episode_details(scenario: Scenario, table: Table, column: int) -> dict[str, Any]:
    """Return the facts of a finished episode that reports show."""
    deadlocked = bool(table.deadlocked[column])
    optimum, exact = best_meals(scenario, table.sequential)
    return {
        "graph": scenario.graph,
        "philosophers": scenario.philosophers,
        "meals": table.meals[:, column].tolist(),
        "steps": int(table.time[column]),
        "time_to_deadlock": int(table.deadlock_time[column]) if deadlocked else None,
        "optimum": optimum,
        "optimum_exact": exact,
    }


def side_by_side(states: Sequence[State]) -> Table:
    """Return one table with the states' episodes as its columns, in their order."""
    tables: dict[int, Table] = {}
    columns: dict[int, list[int]] = {}
    places: dict[int, list[int]] = {}
    for place, state in enumerate(states):
        key = id(state.board)
        tables[key] = state.table
        columns.setdefault(key, []).append(state.column)
        places.setdefault(key, []).append(place)
    joined = concatenate([tables[key].select(columns[key]) for key in tables])
    order = np.argsort([place for key in tables for place in places[key]])
    return joined if len(tables) == 1 else joined.select(order)


#: An episode has at most this many turns; scenarios end much earlier, at their horizon.
MOST_TURNS = 100_000

_read = lru_cache(maxsize=4096)(read_reply)


class PhilosophersEnvironment(Environment[Scenario, State]):
    """A table of philosophers as a cooperative task for language models.

    Args:
        settings: the ``environment`` section.

    Raises:
        ValueError: the reward names a term that does not exist, or a class that cannot be made.
    """

    turns = MOST_TURNS

    def __init__(self, settings: PhilosophersSettings) -> None:
        self.settings = settings
        self.reward = make_reward(settings.reward)
        least, greatest = self.reward.bounds
        # A turn moves the episode's reward from one value within its bounds to another, the first turn from 0.
        self.reward_bounds = (min(least, least - greatest), max(greatest, greatest - least))

    @property
    def episode_bounds(self) -> tuple[float, float]:
        """The bounds of the reward: the last turn moves an episode's reward to where it ends."""
        return self.reward.bounds

    def agents(self, problem: Scenario) -> tuple[str, ...]:
        """Return P0, P1, ... in seating order, whatever the numbers of the philosophers."""
        return tuple(f"P{seat}" for seat in range(problem.philosophers))

    def start(self, problem: Scenario, seed: int = 0) -> State:
        table = lay_table(problem, self.settings.mode == "sequential", self.settings.deadlock_ends)
        return State(
            scenario=problem,
            board=Board(table),
            column=0,
            optimum=best_meals(problem, table.sequential)[0],
            earned={},
            said=("",) * problem.philosophers,
        )

    def acting(self, state: State) -> Sequence[int] | None:
        """Return who acts: the mover in sequential mode, else all who are not eating.

        An action of an eating philosopher changes nothing, so nothing can be learned from it.  With messages all
        philosophers act, because all may write one.
        """
        if state.table.sequential and not self.talking(state):
            return (int(state.table.mover()[state.column]),)
        return None if self.settings.message_rounds else state.board.hungry(state.column)

    def observe(self, state: State, agent: int) -> str:
        view = self._view(state, agent)
        if self.settings.prompt == "compact":
            return text.compact(view)
        limit = self.settings.message_limit if self.settings.message_rounds else 0
        neighbours = state.scenario.plan.neighbours[agent]
        return text.full(
            view,
            self.settings.prompt,
            state.scenario.wording,
            state.table.sequential,
            [(self._name(state, other), state.said[other]) for other in neighbours] if limit else (),
            [past[agent] for past in state.past],
            limit,
            self.talking(state),
        )

    def step(self, states: Sequence[State], joint_actions: Sequence[Sequence[str]]) -> list[Outcome[State]]:
        outcomes: list[Outcome[State] | None] = [None] * len(states)
        together: dict[tuple[str, int], list[int]] = {}
        for index, state in enumerate(states):
            if self.talking(state):
                outcomes[index] = self._talk(state, joint_actions[index])
            else:
                together.setdefault((state.scenario.graph, state.scenario.philosophers), []).append(index)
        for indices in together.values():
            moved = self._move([states[i] for i in indices], [joint_actions[i] for i in indices])
            for index, outcome in zip(indices, moved, strict=True):
                outcomes[index] = outcome
        return [outcome for outcome in outcomes if outcome is not None]

    def stub(self, state: State, agent: int) -> str:
        return text.action_name(WAIT)

    def exhibit(self, state: State, actions: Sequence[str]) -> Exhibit:
        seats = range(state.scenario.philosophers)
        lines = [f"P{seat}: {text.snapshot(self._view(state, seat))}" for seat in seats]
        return Exhibit("\n".join(lines))

    def _move(self, states: list[State], joint_actions: list[Sequence[str]]) -> list[Outcome[State]]:
        before = side_by_side(states)
        movers = [self.acting(state) for state in states]
        limit = self.settings.message_limit if self.settings.message_rounds else 0
        replies: list[dict[int, Reply]] = [
            {i: _read(action, limit) for i, action in enumerate(actions) if who is None or i in who}
            for actions, who in zip(joint_actions, movers, strict=True)
        ]
        codes = np.full(before.left.shape, WAIT, np.int8)
        for column, read in enumerate(replies):
            for i, reply in read.items():
                codes[i, column] = reply.action
        after = move(before, codes)
        summary = summarise(after, [state.optimum for state in states])
        # Each agent's own meals, on the scale of the joint share: its mean over the agents is the gain of that.
        own = summary.philosophers * (after.meals - before.meals) / summary.optimum
        terms = {name: values.tolist() for name, values in self.reward.terms(summary).items()}
        measured = {name: values.tolist() for name, values in metrics(summary).items()}
        done = after.done.tolist()
        board = Board(after)
        outcomes = []
        for column, (old, read) in enumerate(zip(states, replies, strict=True)):
            earned = {name: values[column] for name, values in terms.items()}
            gained = {name: value - old.earned.get(name, 0.0) for name, value in earned.items()}
            state = replace(old, board=board, column=column, earned=earned, talks=0)
            if limit:
                state = self._with_messages(state, read)
            if self.settings.memory:
                state = self._remembering(old, state, read)
            outcomes.append(
                Outcome(
                    reward=sum(gained.values()),
                    terms=gained,
                    metrics={name: values[column] for name, values in measured.items()} | _consistency(state),
                    state=state,
                    done=done[column],
                    details=_details(state) if done[column] else {},
                    agent_rewards={f"P{seat}": float(values[column]) for seat, values in enumerate(own)},
                )
            )
        return outcomes

    def _talk(self, old: State, actions: Sequence[str]) -> Outcome[State]:
        replies = {i: read_reply(action, self.settings.message_limit) for i, action in enumerate(actions)}
        state = replace(
            old,
            talks=old.talks + 1,
            said=tuple(reply.message for reply in replies.values()),
            cut=old.cut + sum(reply.message_cut for reply in replies.values()),
        )
        summary = summarise(old.table.select([old.column]), old.optimum)
        return Outcome(
            reward=0.0,
            terms=dict.fromkeys(self.reward.terms(summary), 0.0),
            agent_rewards=dict.fromkeys(self.agents(old.scenario), 0.0),
            metrics={name: float(values[0]) for name, values in metrics(summary).items()} | _consistency(state),
            state=state,
            done=False,
        )

    def _with_messages(self, state: State, replies: Mapping[int, Reply]) -> State:
        said, (announced, kept) = list(state.said), state.announced
        for i, reply in replies.items():
            said[i] = reply.message
            meant = intent(reply.message)
            announced += meant is not None
            kept += meant is not None and meant == reply.action
        cut = state.cut + sum(reply.message_cut for reply in replies.values())
        return replace(state, said=tuple(said), announced=(announced, kept), cut=cut)

    def _remembering(self, old: State, state: State, replies: Mapping[int, Reply]) -> State:
        """Add the snapshot before this step to the memory, and remove the oldest ones."""
        step = int(old.table.time[old.column])
        seats = range(old.scenario.philosophers)
        seen = [text.snapshot(self._view(old, i)) for i in seats]
        if self.settings.memory_view == "everybody":
            line = f"step {step}: " + "; ".join(f"{self._name(old, i)} {seen[i]}" for i in seats)
            lines = (line,) * len(seen)
        else:
            lines = tuple(
                f"step {step}: {seen[i]}"
                + (f"; you chose {text.action_name(replies[i].action)}" if i in replies else "")
                for i in seats
            )
        return replace(state, past=(*old.past, lines)[-self.settings.memory :])

    def talking(self, state: State) -> bool:
        """Return whether the next turn is a round of messages, without moves."""
        return state.talks < self.settings.message_rounds - 1

    @staticmethod
    def _name(state: State, seat: int) -> str:
        return f"P{state.scenario.labels[seat]}" if state.scenario.labels else "a philosopher"

    @staticmethod
    def _view(state: State, agent: int) -> text.View:
        label = state.scenario.labels[agent] if state.scenario.labels else None
        return state.board.view(agent, state.column, label)


def make_reward(settings: MealsReward) -> Reward:
    """Return the reward that the settings describe; raises as `SumReward` and `custom_reward`."""
    if settings.kind == "sound":
        return SoundReward(settings.deadlock, settings.invalid)
    if settings.kind == "terms":
        return SumReward(settings.weights, settings.clip)
    return custom_reward(settings, Reward, shape=lambda summary: summary.horizon.shape)  # type: ignore[type-abstract]


def _consistency(state: State) -> dict[str, float]:
    announced, kept = state.announced
    return {"message_consistency": kept / announced} if announced else {}


def _details(state: State) -> dict[str, Any]:
    return episode_details(state.scenario, state.table, state.column) | {
        "messages_with_intent": state.announced[0],
        "messages_kept": state.announced[1],
        "messages_cut": state.cut,
    }
