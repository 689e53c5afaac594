"""Outcomes of systems that something else ran: rows of problem, system and value, arranged as tables.

A row is what the chain calls an episode.  What the rows do not say is never made up: a value that is missing, that is
not a number, or that occurs twice with different numbers is a lost episode (`losses`), and a note says so.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline_lib.environment_api.metrics import Metric
from pipeline_lib.evaluation.results import EvaluationError
from pipeline_lib.evaluation.table import Table


class OutcomesError(EvaluationError):
    """A file of outcomes, or what is asked of it, is wrong; the message names the file, the row and the column."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row.

    Attributes:
        problem: id of the problem.
        system: what produced it.
        value: the metric, greater is better; None if it is missing or not a number.
        sample: number among the samples of the problem, or None if the rows have none.
        seed: training seed, or None for a system without.
        family: cluster of the problem; empty: the problem is its own.
        place: file and row, for messages.
    """

    problem: str
    system: str
    value: float | None
    sample: int | None = None
    seed: int | None = None
    family: str = ""
    place: str = ""


@dataclass(frozen=True, slots=True)
class Arranged:
    """The outcomes of all systems.

    Attributes:
        tables: of each system, in the order of the rows.
        notes: what the rows do not support, a sentence each.
    """

    tables: Mapping[str, Table]
    notes: tuple[str, ...]


def describe_values(name: str, outcomes: Iterable[Outcome], given: tuple[float, float] | None = None) -> Metric:
    """Return the metric: its range is the given one; values that are all 0 or 1 are a share.

    Raises:
        OutcomesError: a value lies outside the given range.
    """
    if given is None:
        share = all(one.value in (0.0, 1.0) for one in outcomes if one.value is not None)
        return Metric(name, share=share)
    low, high = given
    for one in outcomes:
        if one.value is not None and not low <= one.value <= high:
            raise OutcomesError(f"{one.place}: {name!r} is {one.value:g}, outside the range {low:g} to {high:g}")
    return Metric(name, share=given == (0.0, 1.0), low=low, high=high)


def arrange(outcomes: Sequence[Outcome]) -> Arranged:
    """Arrange outcomes by system.

    Raises:
        OutcomesError: no rows, a problem in two families, or samples or seeds that only some rows have.
    """
    if not outcomes:
        raise OutcomesError("there are no outcomes")
    families = _families(outcomes)
    _all_or_none(outcomes)
    ranks = _ranks(outcomes)
    by_system: dict[str, list[Outcome]] = defaultdict(list)
    for one in outcomes:
        by_system[one.system].append(one)
    notes: list[str] = []
    tables = {name: _table(name, rows, families, ranks, notes) for name, rows in by_system.items()}
    return Arranged(tables, tuple(notes))


def _families(outcomes: Sequence[Outcome]) -> dict[str, str]:
    first: dict[str, Outcome] = {}
    for one in outcomes:
        known = first.setdefault(one.problem, one)
        if known.family != one.family:
            raise OutcomesError(
                f"{one.place}: problem {one.problem!r} is of family {one.family!r} here, and of family "
                f"{known.family!r} in {known.place}"
            )
    return {problem: one.family or problem for problem, one in first.items()}


def _all_or_none(outcomes: Sequence[Outcome]) -> None:
    """Refuse samples that only some rows have, and seeds that only some rows of a system have."""
    with_samples = {one.sample is not None: one for one in outcomes}
    if len(with_samples) > 1:
        raise OutcomesError(
            f"{with_samples[False].place}: there is no number of the sample, and {with_samples[True].place} has one; "
            "give it in every row or in none"
        )
    seen: dict[tuple[str, bool], Outcome] = {}
    for one in outcomes:
        seen[one.system, one.seed is not None] = one
    for (system, trained), one in seen.items():
        if not trained and (system, True) in seen:
            raise OutcomesError(
                f"{one.place}: {system!r} has no training seed here, and one in {seen[system, True].place}; give it "
                "in every row of a system or in none"
            )


def _ranks(outcomes: Sequence[Outcome]) -> dict[tuple[str, int], int]:
    """Return the place of each sample number among those of its problem, over all systems, which are paired by it."""
    numbers: dict[str, set[int]] = defaultdict(set)
    for one in outcomes:
        if one.sample is not None:
            numbers[one.problem].add(one.sample)
    return {(problem, n): i for problem, found in numbers.items() for i, n in enumerate(sorted(found))}


def _table(
    name: str,
    rows: Sequence[Outcome],
    families: Mapping[str, str],
    ranks: Mapping[tuple[str, int], int],
    notes: list[str],
) -> Table:
    cells: dict[tuple[int | None, str, int], list[Outcome]] = defaultdict(list)
    count: Counter[tuple[int | None, str]] = Counter()
    for one in rows:
        group = one.seed, one.problem
        sample = count[group] if one.sample is None else ranks[one.problem, one.sample]
        count[group] += 1
        cells[(*group, sample)].append(one)
    if not ranks and max(count.values()) > 1:
        notes.append(
            f"rows of {name} have no sample numbers, so repeated rows of a problem count as further samples, in the "
            "order of the rows; a row that was written twice would count twice"
        )
    repeated = [found for found in cells.values() if len(found) > 1]
    if same := [found for found in repeated if len({one.value for one in found}) == 1]:
        notes.append(f"{_several(same, name)} with the same value, for example {_example(same)}, and counts once")
    if other := [found for found in repeated if len({one.value for one in found}) > 1]:
        notes.append(
            f"{_several(other, name)} with different values, for example {_example(other)}: none of them counts, and "
            "the value is taken as lost"
        )
    if missing := [found[0] for found in cells.values() if all(one.value is None for one in found)]:
        number = f"1 value of {name} is" if len(missing) == 1 else f"{len(missing)} values of {name} are"
        notes.append(f"{number} missing or not a number, for example in {missing[0].place}")
    seeds = tuple(sorted({one.seed for one in rows}, key=lambda seed: -1 if seed is None else seed))
    problems = tuple(sorted({one.problem for one in rows}))
    row, place = ({value: i for i, value in enumerate(axis)} for axis in (seeds, problems))
    values = np.full((len(seeds), len(problems), 1 + max(sample for _, _, sample in cells)), np.nan)
    seen = np.zeros(values.shape, dtype=bool)
    for (seed, problem, sample), found in cells.items():
        at = row[seed], place[problem], sample
        seen[at] = True
        if len({one.value for one in found}) == 1 and found[0].value is not None:
            values[at] = found[0].value
    return Table(seeds, problems, tuple(families[problem] for problem in problems), values, seen & np.isnan(values))


def _several(found: Sequence[Sequence[Outcome]], name: str) -> str:
    return f"{'1 outcome' if len(found) == 1 else f'each of {len(found)} outcomes'} of {name} occurs more than once"


def _example(found: Sequence[Sequence[Outcome]]) -> str:
    first, second = found[0][:2]
    return f"problem {first.problem!r} in {first.place} and {second.place}"
