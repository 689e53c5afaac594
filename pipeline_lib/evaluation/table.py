"""Arrange episodes as arrays, and pair those of two teams.

Two teams are paired by (problem, sample): with the same sampling seed, sample j of a problem uses the same random
numbers for both.  If one side of a pair is lost, both sides are left out and counted.  With different numbers of
samples, and where samples have no numbers, they are paired by problem: which come first may depend on how good they
are.  Each problem has the same weight; problems of a family form a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.evaluation.clusters import Codes, encode
from pipeline_lib.evaluation.episodes import EpisodeRecord, value_of
from pipeline_lib.evaluation.results import EvaluationError

Array = NDArray[np.float64]

#: Episodes of a trained team by training seed, or of a team without training seeds (the base).
Episodes: TypeAlias = Mapping[int, Sequence[EpisodeRecord]] | Sequence[EpisodeRecord]


@dataclass(frozen=True, slots=True)
class Table:
    """All values of one metric of one team."""

    seeds: tuple[int | None, ...]  #: training seeds, or ``(None,)`` for a team without
    problems: tuple[str, ...]  #: problem ids, sorted
    families: tuple[str, ...]  #: family of each problem
    values: Array  #: (seeds, problems, samples); NaN where an episode is missing or was lost
    gone: NDArray[np.bool_]  #: which episodes the infrastructure lost, as ``values``
    #: Whether equal numbers of samples belong together; else their order is that of a file, and means nothing.
    numbered: bool = True

    @property
    def lost(self) -> int:
        """Number of episodes lost to the infrastructure."""
        return int(self.gone.sum())

    @property
    def played(self) -> int:
        """Number of episodes, lost ones included."""
        return int((~np.isnan(self.values) | self.gone).sum())

    @property
    def trained(self) -> bool:
        """Whether the team has training seeds."""
        return self.seeds != (None,)


def tabulate(episodes: Episodes, metric: str, name: str = "the team") -> Table:
    """Arrange one team's episodes.

    Raises:
        EvaluationError: there are no episodes, an episode occurs twice, a problem has two families, or a value is
            not a number.
    """
    groups: dict[int | None, Sequence[EpisodeRecord]]
    groups = {seed: episodes[seed] for seed in sorted(episodes)} if isinstance(episodes, Mapping) else {None: episodes}
    if not groups or not all(groups.values()):
        empty = next((f" of training seed {s}" for s, records in groups.items() if not records and s is not None), "")
        raise EvaluationError(f"there are no episodes of {name}{empty}; evaluate it first")
    family: dict[str, str] = {}
    for records in groups.values():
        for record in records:
            if family.setdefault(record.problem, record.family) != record.family:
                raise EvaluationError(
                    f"problem {record.problem} belongs to family '{family[record.problem]}' in one episode and to "
                    f"'{record.family}' in another; the episodes come from different data, evaluate them again"
                )
    problems = tuple(sorted(family))
    place = {problem: i for i, problem in enumerate(problems)}
    samples = 1 + max(record.sample for records in groups.values() for record in records)
    values = np.full((len(groups), len(problems), samples), np.nan)
    seen = np.zeros(values.shape, dtype=bool)
    for s, (seed, records) in enumerate(groups.items()):
        for record in records:
            cell = (s, place[record.problem], record.sample)
            if seen[cell]:
                whose = name if seed is None else f"{name}, training seed {seed}"
                raise EvaluationError(
                    f"{whose}: episode {record.sample} of problem {record.problem} occurs twice; two evaluations were "
                    "mixed, keep one"
                )
            seen[cell] = True
            value = value_of(record, metric)
            if value is not None:
                values[cell] = value
    gone = seen & np.isnan(values)
    return Table(tuple(groups), problems, tuple(family[problem] for problem in problems), values, gone)


def problem_means(table: Table) -> Array:
    """Return (seeds, problems) means over samples; NaN if a seed has no episode of a problem."""
    present = ~np.isnan(table.values)
    count = present.sum(axis=2)
    total = np.where(present, table.values, 0.0).sum(axis=2)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def on_common_episodes(tables: Sequence[Table]) -> list[Table]:
    """Return the tables without the episodes that some of them lost, so that no team is judged on easier ones.

    Tables of other problems or numbers of samples are returned as they are.
    """
    if len({(table.problems, table.values.shape[2]) for table in tables}) > 1:
        return list(tables)
    gone = np.any([table.gone.any(axis=0) for table in tables], axis=0)
    return [replace(table, values=np.where(gone, np.nan, table.values)) for table in tables]


@dataclass(frozen=True, slots=True)
class Pairing:
    """Two teams on the same problems."""

    problems: tuple[str, ...]  #: ids of the common problems, sorted
    clusters: Codes  #: (problems,) family code of each
    a: Array  #: (rows, problems, samples) values of the first team, NaN where left out; a row is a training seed
    b: Array  #: (rows, problems, samples) values of the second
    #: Row i of ``a`` is paired with row i of ``b``: they have the same training seed, or one team has no seeds and is
    #: repeated.
    aligned: bool
    #: Training seeds of the aligned rows (or of ``a`` if not aligned); ``(None,)`` if neither has any.
    seeds: tuple[int | None, ...]
    trained: tuple[bool, bool]  #: whether the first, and the second, team has training seeds
    episodes: tuple[int, int]  #: episodes used, of the first and the second team
    notes: tuple[str, ...]  #: numbers of episodes and problems left out, in words

    @property
    def a_means(self) -> Array:
        """(rows, problems) means over samples."""
        return np.asarray(np.nanmean(self.a, axis=2))

    @property
    def b_means(self) -> Array:
        """(rows, problems) means over samples."""
        return np.asarray(np.nanmean(self.b, axis=2))


def pair(a: Table, b: Table, names: tuple[str, str] = ("the first team", "the second team")) -> Pairing:
    """Pair two teams by problem and sample, and by training seed where both have the same ones.

    Raises:
        EvaluationError: they have no common problem, or a problem has two families.
    """
    common = sorted(set(a.problems) & set(b.problems))
    if not common:
        raise EvaluationError(
            f"{names[0]} and {names[1]} have no problem in common; evaluate both on the same split of the same data"
        )
    rows_a, rows_b = _places(a, common), _places(b, common)
    families = [a.families[i] for i in rows_a]
    for problem, left, right in zip(common, families, (b.families[i] for i in rows_b), strict=True):
        if left != right:
            raise EvaluationError(
                f"problem {problem} belongs to family '{left}' for {names[0]} and '{right}' for {names[1]}; they were "
                "evaluated on different data, evaluate both again"
            )
    x, y = a.values[:, rows_a], b.values[:, rows_b]
    aligned = a.seeds == b.seeds or not (a.trained and b.trained)
    dropped = 0
    if aligned:  # a team without seeds is paired with every seed of the other
        rows = max(len(x), len(y))
        x, y = (np.broadcast_to(values, (rows, *values.shape[1:])) for values in (x, y))
    if aligned and x.shape == y.shape and a.numbered and b.numbered:
        # A pair counts if both sides exist.
        missing = np.isnan(x) | np.isnan(y)
        dropped = int((missing & ~(np.isnan(x) & np.isnan(y))).sum())
        x, y = np.where(missing, np.nan, x), np.where(missing, np.nan, y)
    usable = (~np.isnan(x)).any(axis=2).all(axis=0) & (~np.isnan(y)).any(axis=2).all(axis=0)
    if not usable.any():
        raise EvaluationError(
            f"no problem has an episode of both {names[0]} and {names[1]} that was not lost; evaluate both again"
        )
    kept = np.flatnonzero(usable)
    x, y = x[:, kept], y[:, kept]
    return Pairing(
        problems=tuple(common[i] for i in kept),
        clusters=encode([families[i] for i in kept]),
        a=x,
        b=y,
        aligned=aligned,
        seeds=a.seeds if a.trained else b.seeds,
        trained=(a.trained, b.trained),
        episodes=(_episodes(x, a.trained), _episodes(y, b.trained)),
        notes=_left_out(a, b, len(common), kept.size, dropped, names),
    )


def _places(table: Table, problems: Sequence[str]) -> list[int]:
    place = {problem: i for i, problem in enumerate(table.problems)}
    return [place[problem] for problem in problems]


def _episodes(values: Array, trained: bool) -> int:
    present = ~np.isnan(values)
    return int(present.sum() if trained else present.any(axis=0).sum())


def _most(table: Table) -> int:
    """Return the greatest number of episodes of a problem, lost ones included."""
    return int((~np.isnan(table.values) | table.gone).sum(axis=2).max())


def _left_out(a: Table, b: Table, common: int, usable: int, dropped: int, names: tuple[str, str]) -> tuple[str, ...]:
    notes = []
    for table, name in ((a, names[0]), (b, names[1])):
        if extra := len(table.problems) - common:
            whole = len(table.problems)
            notes.append(f"{extra} of {whole} problems of {name} have no partner; the means are without them")
        if table.lost:
            notes.append(f"{table.lost} episodes of {name} were lost; the means are without them")
    if common > usable:
        notes.append(f"{common - usable} of {common} problems have no complete pair; the means are without them")
    if dropped:
        notes.append(f"{dropped} episodes have no partner; the means are without them")
    if a.values.shape[2] != b.values.shape[2]:
        notes.append(
            f"{names[0]} has up to {_most(a)} episodes per problem and {names[1]} {_most(b)}: their means over all of "
            "a problem were compared"
        )
    return tuple(notes)
