"""Play scripted policies on scenarios and write the same episode records as an evaluation of models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline_lib.environments.philosophers.rewards import Reward
from pipeline_lib.environments.philosophers.scenarios import Scenario
from pipeline_lib.environments.philosophers.scripted import Actions, Script
from pipeline_lib.environments.philosophers.state import best_meals, episode_details, lay_table
from pipeline_lib.environments.philosophers.summary import Summary, metrics, summarise
from pipeline_lib.environments.philosophers.table import Table, concatenate
from pipeline_lib.environments.philosophers.table import step as clean_step
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.storage import digest

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
    """Let a script play a batch to the end.

    Raises:
        ValueError: the script is not made for this table.
    """
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
