"""Policies without a model: reference lines for every report, the ladder of the reward audit, and all small policies.

A script sees the whole batch as arrays and returns action codes.  Most use only what a philosopher sees anyway (its
hands and forks, its seat, the clock); ``optimal`` knows everything.  Random draws come from a generator that the
caller seeds.

The deterministic policies without memory are few enough to try all of them.  Such a policy sees its two forks, each
held, free or taken, and chooses an action: a table of nine entries.  Choices without effect (taking what is not free,
releasing nothing) are fixed to WAIT, which leaves 432 tables.  Two of them, one for even and one for odd seats, make
186,624 teams; playing them all takes seconds.

`scripted_records` plays them and writes the same episode records as an evaluation of models.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from pipeline_lib.environments.philosophers.optimum import (
    EATING,
    EXACT_PHILOSOPHERS,
    HAS_LEFT,
    HAS_RIGHT,
    NOTHING,
    Plan,
    actions_between,
    make_plan,
)
from pipeline_lib.environments.philosophers.rewards import Reward, Summary, metrics, summarise
from pipeline_lib.environments.philosophers.runtime import best_meals, episode_details, lay_table
from pipeline_lib.environments.philosophers.scenarios import Scenario
from pipeline_lib.environments.philosophers.table import (
    INVALID,
    LEFT,
    RELEASE,
    RIGHT,
    WAIT,
    Bools,
    Table,
    concatenate,
    step,
)
from pipeline_lib.environments.philosophers.table import step as clean_step
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.storage import digest

Actions = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Script:
    """A policy of the whole table."""

    name: str  #: what it is called
    act: Callable[[Table, np.random.Generator], Actions]  #: returns the action codes of all philosophers, (N, B)
    #: Raises ValueError if the script is not made for such a table; by default every table will do.
    check: Callable[[Table], None] = lambda table: None


def _constant(name: str, action: int) -> Script:
    """Return the script in which all philosophers always do the same."""
    return Script(name, lambda table, rng: np.full(table.left.shape, action, np.int8))


def _first_then_second(name: str, right_first: Callable[[Table], Bools], graphs: Sequence[str]) -> Script:
    """Take the first fork, then the second, wait if it is not free; never release a fork.

    ``right_first`` tells, by seat, whose first fork is the right one; the order is only meaningful on these graphs.
    """

    def act(table: Table, rng: np.random.Generator) -> Actions:
        free_left, free_right = _free(table)
        # What is held at the start decides which fork is the second one.
        first = np.broadcast_to(right_first(table), table.left.shape)
        wants_right = np.where(table.left, True, np.where(table.right, False, first))
        return np.where(wants_right, np.where(free_right, RIGHT, WAIT), np.where(free_left, LEFT, WAIT)).astype(np.int8)

    def check(table: Table) -> None:
        if table.graph.name not in graphs:
            raise ValueError(
                f"the scripted policy {name!r} is made for {' and '.join(graphs)}, not for a {table.graph.name}"
            )

    return Script(name, act, check)


def _random(table: Table, rng: np.random.Generator) -> Actions:
    """Choose each of the four actions with equal chance."""
    return rng.integers(0, 4, table.left.shape, dtype=np.int8)


def _polite_random(table: Table, rng: np.random.Generator) -> Actions:
    """Start only when both forks are free (left, right or wait, at random); release a fork if the other is not free."""
    free_left, free_right = _free(table)
    lot = rng.choice(np.array([LEFT, RIGHT, WAIT], np.int8), table.left.shape)
    empty = np.where(free_left & free_right, lot, WAIT)
    has_left = np.where(free_right, RIGHT, RELEASE)
    has_right = np.where(free_left, LEFT, RELEASE)
    return np.where(table.left, has_left, np.where(table.right, has_right, empty)).astype(np.int8)


def _time_slots(table: Table, rng: np.random.Generator) -> Actions:
    """Let the philosophers of one colour eat while the others hold no fork; colours take turns by the clock."""
    colours = np.array(table.graph.colours)[:, None]
    rounds = table.time // (table.graph.philosophers if table.sequential else 1)
    mine = colours == (rounds // (2 + table.eating_time)) % (colours.max() + 1)
    grab = np.where(table.left, RIGHT, LEFT)
    release = np.where(table.left ^ table.right, RELEASE, WAIT)
    return np.where(table.eating > 0, WAIT, np.where(mine, grab, release)).astype(np.int8)


def _computable(table: Table) -> None:
    """Raise ValueError if the optimum of the table is not computed exactly."""
    if table.graph.philosophers > EXACT_PHILOSOPHERS:
        raise ValueError(
            f"the scripted policy 'optimal' plans for up to {EXACT_PHILOSOPHERS} philosophers, "
            f"not for {table.graph.philosophers}"
        )


def _optimal(table: Table, rng: np.random.Generator) -> Actions:
    """Plan to the horizon by dynamic programming, with knowledge of the whole table: the most meals that are possible.

    Among the best moves it takes one that favours those who have eaten least.
    """
    actions = np.full(table.left.shape, WAIT, np.int8)
    digits = np.select(
        [table.eating > 0, table.left, table.right], [EATING - 1 + table.eating, HAS_LEFT, HAS_RIGHT], NOTHING
    ).astype(np.int8)
    for column in np.flatnonzero(~table.done):
        order = tuple(np.argsort(table.priority[:, column]).tolist()) if table.sequential else ()
        plan = make_plan(table.graph, int(table.eating_time[column]), int(table.horizon[column]), order)
        actions[:, column] = _best_move(plan, digits[:, column], table, int(column))
    return actions


def _best_move(plan: Plan, digits: npt.NDArray[np.int8], table: Table, column: int) -> Actions:
    left = int(table.horizon[column] - table.time[column])
    phase = int(table.time[column]) % len(plan.starts)
    best = plan.best_moves(int(plan.number(digits)), phase, left)
    after = plan.configurations[best]
    eaten = table.meals[:, column]
    begins = (after >= EATING) & (digits < EATING)
    # Begun meals weigh twice what a fork in hand does; ties go to the first.
    cost = (eaten * (2 * begins + ((after == HAS_LEFT) | (after == HAS_RIGHT)))).sum(axis=1)
    return actions_between(digits, after[int(np.argmin(cost))])


def _free(table: Table) -> tuple[Bools, Bools]:
    """Return whether each philosopher's left and right fork is free, (N, B) each."""
    free = ~table.taken()
    return free[table.graph.left_index], free[table.graph.right_index]


def _greedy(table: Table) -> Bools:
    return np.zeros((table.graph.philosophers, 1), np.bool_)


def _even_seats(table: Table) -> Bools:
    return (np.arange(table.graph.philosophers) % 2 == 0)[:, None]


def _lower_fork(table: Table) -> Bools:
    return (table.graph.right_index < table.graph.left_index)[:, None]


_ANY = ("ring", "chain", "grid")

#: All scripted policies by name.  ``unparseable`` writes what cannot be read.
SCRIPTS: dict[str, Script] = {
    script.name: script
    for script in (
        _constant("wait", WAIT),
        _constant("release", RELEASE),
        _constant("unparseable", INVALID),
        _constant("always_left", LEFT),
        _constant("always_right", RIGHT),
        _first_then_second("greedy_left", _greedy, _ANY),
        Script("random", _random),
        Script("polite_random", _polite_random),
        _first_then_second("parity", _even_seats, ("ring", "chain")),
        _first_then_second("hierarchy", _lower_fork, _ANY),
        Script("time_slots", _time_slots),
        Script("optimal", _optimal, _computable),
    )
}


def script(name: str) -> Script:
    """Return a scripted policy; raises ValueError if there is none of this name."""
    if name not in SCRIPTS:
        raise ValueError(f"there is no scripted policy {name!r}; known: {', '.join(SCRIPTS)}")
    return SCRIPTS[name]


#: What can be seen of one fork.
MINE, FREE, TAKEN = range(3)

#: Number of things a philosopher can see of its two forks.
CLASSES = 9


def seen(table: Table) -> npt.NDArray[np.intp]:
    """Return the class of what each philosopher sees, (N, B): three times the left fork's state plus the right's."""
    taken = table.taken()
    left = np.where(table.left, MINE, FREE + taken[table.graph.left_index])
    right = np.where(table.right, MINE, FREE + taken[table.graph.right_index])
    return (3 * left + right).astype(np.intp)


@lru_cache(maxsize=1)
def all_tables() -> npt.NDArray[np.int8]:
    """Return the 432 effective tables, (432, 9): an action code for every class of `seen`."""
    choices: list[tuple[int, ...]] = []
    for left, right in itertools.product((MINE, FREE, TAKEN), repeat=2):
        options = [WAIT]
        if left == FREE:
            options.append(LEFT)
        if right == FREE:
            options.append(RIGHT)
        if (left == MINE) != (right == MINE):
            options.append(RELEASE)
        choices.append(tuple(options))
    return np.array(list(itertools.product(*choices)), dtype=np.int8)


def play_teams(table: Table, numbers: npt.NDArray[np.intp]) -> Table:
    """Play teams of memoryless policies to the end.

    Args:
        table: B tables at time 0.
        numbers: (N, B), the row of `all_tables` that each philosopher follows.
    """
    rows = all_tables().ravel()
    offsets = numbers * CLASSES
    places = np.arange(table.batch)
    finished: list[Table] = []
    where: list[npt.NDArray[np.intp]] = []
    while not (done := table.done).all():
        if done.mean() > 0.3:  # most pairs deadlock early; there is no point in carrying them along
            over, live = np.flatnonzero(done), np.flatnonzero(~done)
            finished.append(table.select(over))
            where.append(places[over])
            table, places, offsets = table.select(live), places[live], offsets[:, live]
        table = step(table, rows[offsets + seen(table)])
    order = np.argsort(np.concatenate([*where, places]))
    return concatenate([*finished, table]).select(order)


Step = Callable[[Table, Actions], Table]


@dataclass(frozen=True, slots=True)
class Batch:
    """Scenarios of one graph, laid out side by side."""

    scenarios: tuple[Scenario, ...]  #: one per column
    places: tuple[int, ...]  #: index of each column's scenario in the given list
    table: Table  #: the tables at time 0
    optimum: tuple[int, ...]  #: (B,) most meals possible in each


def lay_batches(scenarios: Sequence[Scenario], sequential: bool, deadlock_ends: bool = True) -> list[Batch]:
    """Lay out scenarios, those of one graph together."""
    groups: dict[tuple[str, int], list[int]] = {}
    for place, scenario in enumerate(scenarios):
        groups.setdefault((scenario.graph, scenario.philosophers), []).append(place)
    return [
        Batch(
            tuple(scenarios[i] for i in places),
            tuple(places),
            concatenate([lay_table(scenarios[i], sequential, deadlock_ends) for i in places]),
            tuple(best_meals(scenarios[i], sequential)[0] for i in places),
        )
        for places in groups.values()
    ]


def play(table: Table, script: Script, rng: np.random.Generator, step: Step = clean_step) -> Table:
    """Let a script play a batch to the end; raises ValueError if the script is not made for this table."""
    script.check(table)
    while not table.done.all():
        table = step(table, script.act(table, rng))
    return table


def summaries(
    script: Script, scenarios: Sequence[Scenario], seed: int, sequential: bool = False, deadlock_ends: bool = True
) -> list[tuple[Batch, Table, Summary]]:
    """Play a script once on every scenario and return the summaries, by batch."""
    played = []
    for batch in lay_batches(scenarios, sequential, deadlock_ends):
        rng = np.random.default_rng(int(digest(["script", script.name, seed, batch.table.graph.name])[:15], 16))
        table = play(batch.table, script, rng)
        played.append((batch, table, summarise(table, batch.optimum)))
    return played


def scripted_records(
    script: Script,
    scenarios: Sequence[Scenario],
    reward: Reward,
    samples: int = 1,
    seed: int = 0,
    sequential: bool = False,
    deadlock_ends: bool = True,
) -> list[EpisodeRecord]:
    """Evaluate a script: records of ``samples`` episodes per scenario, in the scenarios' order.

    Raises:
        ValueError: the script is not made for one of the tables.
    """
    repeated = [scenario for scenario in scenarios for _ in range(samples)]
    records: list[EpisodeRecord | None] = [None] * len(repeated)
    for batch, table, summary in summaries(script, repeated, seed, sequential, deadlock_ends):
        terms = {name: values.tolist() for name, values in reward.terms(summary).items()}
        measured = {name: values.tolist() for name, values in metrics(summary).items()}
        for column, place in enumerate(batch.places):
            earned = {name: values[column] for name, values in terms.items()}
            records[place] = EpisodeRecord(
                problem=batch.scenarios[column].id,
                family=batch.scenarios[column].family,
                sample=place % samples,
                reward=sum(earned.values()),
                turns=int(table.time[column]),
                terms=earned,
                metrics={name: values[column] for name, values in measured.items()},
                tokens=0,
                details=episode_details(batch.scenarios[column], table, column),
            )
    return [record for record in records if record is not None]
