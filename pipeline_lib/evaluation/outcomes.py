"""Outcomes of systems that something else ran: rows of problem, system and value, arranged as tables.

A row is what the chain calls an episode.  What the rows do not say is never made up: a value that is missing, that is
not a number, or that occurs twice with different numbers is a lost episode (`comparison.Losses`), and a note says so.
So is an outcome without a row: runs that fail often leave none, so what is there may be the better part (`complete`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipeline_lib.environment_api.metrics import Metric
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.results import EvaluationError
from pipeline_lib.evaluation.table import Table, tabulate


class OutcomesError(EvaluationError):
    """A file of outcomes, or what is asked of it, is wrong; the message names the file, the row and the column."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row."""

    problem: str  #: id of the problem
    system: str  #: what produced it
    value: float | None  #: the metric, greater is better; None if it is missing or not a number
    sample: int | None = None  #: number among the samples of the problem, or None if the rows have none
    seed: int | None = None  #: training seed, or None for a system without
    family: str = ""  #: cluster of the problem; empty: the problem is its own
    place: str = ""  #: file and row, for messages


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
            raise OutcomesError(
                f"{one.place}: {name!r} is {exact(one.value)}, outside the range {exact(low)} to {exact(high)}"
            )
    return Metric(name, share=given == (0.0, 1.0), low=low, high=high)


def exact(number: float) -> str:
    """Return a number with all digits that tell it from others.

    Examples:
        >>> exact(1.0000001), exact(1.0)
        ('1.0000001', '1')
    """
    return repr(float(number)).removesuffix(".0")


def arrange(outcomes: Sequence[Outcome]) -> tuple[dict[str, Table], list[str]]:
    """Return the tables of all systems, in the order of the rows, and what the rows do not support, a sentence each.

    Raises:
        OutcomesError: no rows, a problem in two families, samples or seeds that only some rows have, or a system
            without any value that counts.
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
    return {name: _table(name, rows, families, ranks, notes) for name, rows in by_system.items()}, notes


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
            f"rows of {name} have no sample numbers, so repeated rows of a problem count as further samples; a row "
            "that was written twice would count twice"
        )
    of_rows: list[str] = []
    repeated = [same for same in cells.values() if len(same) > 1]
    for differ, then in (
        (False, "the same value, for example {}, and counts once"),
        (True, "different values, for example {}: none of them counts, and the value is taken as lost"),
    ):
        if several := [same for same in repeated if (len({one.value for one in same}) > 1) == differ]:
            who = "1 outcome" if len(several) == 1 else f"each of {len(several)} outcomes"
            first, second = several[0][:2]
            example = f"problem {first.problem!r} in {first.place} and {second.place}"
            of_rows.append(f"{who} of {name} occurs more than once with {then.format(example)}")
    if missing := [same[0] for same in cells.values() if all(one.value is None for one in same)]:
        number = f"1 value of {name} is" if len(missing) == 1 else f"{len(missing)} values of {name} are"
        of_rows.append(f"{number} missing or not a number, for example in {missing[0].place}")
    notes += of_rows
    episodes: dict[int | None, list[EpisodeRecord]] = defaultdict(list)
    for (seed, problem, sample), same in cells.items():
        value = same[0].value if len({one.value for one in same}) == 1 else None
        episodes[seed].append(EpisodeRecord(problem, families[problem], sample, value, 1, {}, {}, 0))
    if all(record.reward is None for records in episodes.values() for record in records):
        apart = ". Keep one row of each, or name a column that tells them apart (--sample, --seed)" if repeated else ""
        raise OutcomesError(f"{name!r} has no value that counts: {'; '.join(of_rows)}{apart}")
    trained = {seed: records for seed, records in episodes.items() if seed is not None}
    return replace(tabulate(trained or episodes[None], "reward", name), numbered=bool(ranks))


def complete(tables: tuple[Table, Table], names: tuple[str, str]) -> tuple[tuple[Table, Table], list[str]]:
    """Return two systems' tables with an outcome, a lost one, wherever one has no row that it should have.

    It should have an outcome of every problem that either has, in every training seed that it has, for each place of a
    sample that it has in this seed: fewer samples of every problem are no loss.  Where both have as many at most, what
    neither has (of a problem in a seed) is missing in neither, since the numbers of samples may depend on the problem.

    Returns:
        The tables, and a sentence for each system with such outcomes.  Those without a common problem stay as they are.
    """
    places = [{problem: i for i, problem in enumerate(table.problems)} for table in tables]
    if not set(places[0]) & set(places[1]):
        return tables, []
    families = {
        problem: family for table in tables for problem, family in zip(table.problems, table.families, strict=True)
    }
    problems = sorted(families)
    samples = max(table.values.shape[2] for table in tables)
    wide = []
    for table, place in zip(tables, places, strict=True):
        shape = (len(table.seeds), len(problems), samples)
        values, there = np.full(shape, np.nan), np.zeros(shape, dtype=bool)
        rows = [i for i, problem in enumerate(problems) if problem in place]
        here = [place[problems[i]] for i in rows]
        values[:, rows, : table.values.shape[2]] = table.values[:, here]
        there[:, rows, : table.values.shape[2]] = ~np.isnan(table.values[:, here]) | table.gone[:, here]
        wide.append((values, there))
    masks = [there for _, there in wide]
    if len({int(there.sum(axis=2).max()) for there in masks}) > 1:
        either = np.ones((len(problems), samples), bool)  # who has fewer cannot tell how many the other should have
    elif tables[0].seeds == tables[1].seeds or not (tables[0].trained and tables[1].trained):
        either = np.asarray(masks[0] | masks[1])  # (seeds, problems, samples)
    else:
        either = np.asarray(masks[0].any(axis=0) | masks[1].any(axis=0))  # (problems, samples)
    found, notes = [], []
    for table, name, (values, there) in zip(tables, names, wide, strict=True):
        absent: Any = there.any(axis=1, keepdims=True) & ~there & either
        if absent.shape != there.shape:  # it has no seeds, and stands beside each of the other's
            absent = absent.any(axis=0, keepdims=True)
        own = slice(table.values.shape[2])
        full = replace(
            table,
            problems=tuple(problems),
            families=tuple(families[problem] for problem in problems),
            values=values[:, :, own],
            gone=((there | absent) & np.isnan(values))[:, :, own],
        )
        found.append(full)
        if missing := int(absent.sum()):
            which = problems[int(np.argwhere(absent)[0][1])]
            notes.append(
                f"{missing} of {missing + int(there.sum())} outcomes of {name} have no row, for example of problem "
                f"{which!r}: they are taken as lost, since runs that fail often leave none; if they were left out "
                "before an outcome was seen, say --only-common"
            )
    return (found[0], found[1]), notes
