"""Cross-play: agents of one training run in the team of another (zero-shot coordination, Hu et al. 2020).

A team that was trained together may rely on conventions of its own.  So in each trained team one agent at a time is
replaced by the same agent of every other training run (the guest), and by that of the untrained base.  If the guests do
as well, the agents understand the task; if not, they understand each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pipeline_lib.environment_api.metrics import Metric
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.evidence import over_problems
from pipeline_lib.evaluation.losses import widest
from pipeline_lib.evaluation.metrics import value_of
from pipeline_lib.evaluation.results import Estimate, Result

#: The run of a guest that nobody trained.
BASE_GUEST = "base"


class Guest(NamedTuple):
    """An agent of another run in a team."""

    agent: str  #: name of the policy that is replaced
    run: int | str  #: the training seed it comes from, or `BASE_GUEST`


def guests(agents: Sequence[str], runs: Sequence[int | str]) -> list[Guest]:
    """Return every agent of every run in ``runs``."""
    return [Guest(agent, run) for run in runs for agent in agents]


@dataclass(frozen=True, slots=True)
class Cell(Result):
    """Teams of one run with one guest."""

    seed: int  #: training seed of the team
    agent: str  #: the agent that was replaced, or empty: none was
    run: int | str  #: training seed of the guest, or `BASE_GUEST`
    mean: Estimate  #: mean of the metric over problems; its interval holds whatever the lost episodes would have shown


def cells(teams: Mapping[int, Sequence[EpisodeRecord]], metric: str, info: Metric, level: float) -> tuple[Cell, ...]:
    """Return the mean of every kind of team that was played.

    Args:
        teams: episodes by training seed, with guests and without.
        metric: its name.
        info: its range.
        level: coverage of the intervals over problems, clustered by family.
    """
    found = []
    for seed, records in teams.items():
        values: dict[Guest, dict[str, list[float | None]]] = defaultdict(lambda: defaultdict(list))
        for record in records:
            guest = Guest(**record.details.get("guest", _alone(seed)))
            values[guest][record.problem].append(value_of(record, metric))
        families = {record.problem: record.family for record in records}
        for guest, by_problem in sorted(values.items(), key=lambda item: (str(item[0].run), item[0].agent)):
            kept = {name: left for name, every in by_problem.items() if (left := [v for v in every if v is not None])}
            if not kept:
                continue
            mean = over_problems(kept, families, level, info)
            if any(None in every for every in by_problem.values()):
                seen = [value for every in kept.values() for value in every]
                ends = (min(seen) if info.low is None else info.low, max(seen) if info.high is None else info.high)
                whole = [
                    {n: [end if v is None else v for v in every] for n, every in by_problem.items()} for end in ends
                ]
                mean = widest(mean, [over_problems(one, families, level, info) for one in whole])
            found.append(Cell(seed, guest.agent, guest.run, mean))
    return tuple(found)


def _alone(seed: int) -> dict[str, int | str]:
    return {"agent": "", "run": seed}
