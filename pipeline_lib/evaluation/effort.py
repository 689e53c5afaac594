"""Equal effort in the test: does a team pay, if one agent may spend as many tokens on further attempts?

The agent that is cheaper per episode makes as many attempts as the tokens of the other side allow, and keeps one of
them.  It chooses by what agents may see: the attempt that passes most visible tests (as AlphaCode filters its samples,
arXiv 2203.07814), or the answer that most attempts gave (self-consistency, arXiv 2203.11171).  Among equals, chance
decides.  Both sides choose in the same way.

The episodes of a problem are exchangeable, so nothing further is played: every value here is the expectation over all
choices of n of its episodes.  A number of attempts between n and n + 1 means n + 1 attempts in that share of cases, so
that the expected tokens of both sides are equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.environment_api.metrics import Metric
from pipeline_lib.evaluation.comparison import Comparison, measure_tables
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.evidence import over_problems
from pipeline_lib.evaluation.results import Estimate, Result
from pipeline_lib.evaluation.table import Array, Episodes, Table, tabulate

if TYPE_CHECKING:
    from pipeline_lib.settings.evaluate import VerdictSettings

#: By which of an episode's details an attempt is chosen, and how.
CHOICES = {
    "visible": "the attempt that passes most visible tests",
    "answer": "the answer that most attempts gave",
}


@dataclass(frozen=True, slots=True)
class Point(Result):
    """A team that makes some attempts and keeps one."""

    attempts: int
    value: Estimate  #: expected metric of the attempt that is kept; problems with a lost episode are left out
    tokens: float  #: sampled for a problem, in all attempts
    sequential_tokens: float  #: sampled one after another if the attempts are made at the same time
    seconds: float | None = None  #: of this machine in the test, in which episodes are played side by side


def kept(signs: Sequence[float] | Sequence[str], attempts: float) -> Array:
    """Return for each of m episodes the probability that it is kept, shape (m,).

    Args:
        signs: shares, of which the greatest is kept, or answers, of which the most frequent is kept.
        attempts: how many of the episodes are attempts, in [1, m].
    """
    whole = int(attempts)
    if attempts == whole:
        return _most_frequent(signs, whole) if isinstance(signs[0], str) else _greatest(signs, whole)
    return (whole + 1 - attempts) * kept(signs, whole) + (attempts - whole) * kept(signs, whole + 1)


def _greatest(signs: Sequence[Any], attempts: int) -> Array:
    values = np.asarray(signs, dtype=float)
    total = comb(len(values), attempts)
    below = np.array([(values < value).sum() for value in values])
    equal = np.array([(values == value).sum() for value in values])
    # That the greatest value is this one, divided by the number of episodes that have it.
    ways = [comb(int(b + e), attempts) - comb(int(b), attempts) for b, e in zip(below, equal, strict=True)]
    return np.array([way / total for way in ways]) / equal


def _most_frequent(signs: Sequence[Any], attempts: int) -> Array:
    counts = Counter(signs)
    all_counts = tuple(sorted(counts.values()))
    return np.array([_chance(counts[answer], all_counts, attempts) / counts[answer] for answer in signs])


@lru_cache(maxsize=1 << 16)
def _chance(count: int, counts: tuple[int, ...], attempts: int) -> float:
    """Return how probably an answer that ``count`` episodes gave wins, where ``counts`` has those of all answers."""
    others = list(counts)
    others.remove(count)
    ways = 0.0
    for votes in range(1, min(count, attempts) + 1):
        for ties, number in _with_fewer_votes(others, votes, attempts - votes).items():
            ways += comb(count, votes) * number / (ties + 1)
    return ways / comb(sum(counts), attempts)


def _with_fewer_votes(counts: Sequence[int], votes: int, attempts: int) -> dict[int, int]:
    """Return by the number of answers with exactly ``votes`` how many choices of ``attempts`` give none more votes."""
    ways = {(0, 0): 1}  # by attempts so far and ties
    for count in counts:
        after: dict[tuple[int, int], int] = {}
        for (made, ties), number in ways.items():
            for more in range(min(count, votes, attempts - made) + 1):
                key = (made + more, ties + (more == votes))
                after[key] = after.get(key, 0) + number * comb(count, more)
        ways = after
    return {ties: number for (made, ties), number in ways.items() if made == attempts}


def with_attempts(episodes: Episodes, metric: str, by: str, attempts: float, name: str) -> Table:
    """Return the expected value of the attempt that is kept, as one episode per problem.

    A problem of which an episode was lost counts as lost: how good its attempts would have been is not known.

    Args:
        episodes: of one team; every problem has the same number of them.
        metric: the one to be compared.
        by: one of `CHOICES`; the detail of an episode by which it is chosen.
        attempts: how many attempts are made, in [1, episodes per problem].
        name: of the team, for messages.
    """
    single = tabulate(episodes, metric, name)
    values = np.full((*single.values.shape[:2], 1), np.nan)
    for row, records in enumerate(_groups(episodes)):
        for column, problem in enumerate(single.problems):
            here = single.values[row, column]
            played = {record.sample: sign(record, by) for record in records if record.problem == problem}
            if played and not single.gone[row, column].any():
                values[row, column] = here[list(played)] @ kept(list(played.values()), min(attempts, len(played)))
    lost: NDArray[np.bool_] = np.any(single.gone, axis=2, keepdims=True)
    return replace(single, values=values, gone=lost)


def sign(record: EpisodeRecord, by: str) -> Any:
    """Return what a team sees of its episode: the share of visible tests passed (0 if none ran), or its answer."""
    return float(record.details.get(by, 0.0)) if by == "visible" else str(record.details.get(by, ""))


def tokens_of(episodes: Episodes) -> float:
    """Return the tokens sampled for an episode, averaged over the episodes of every training run, then over runs."""
    return float(np.mean([np.mean([record.tokens for record in records]) for records in _groups(episodes)]))


@dataclass(frozen=True, slots=True)
class Effort(Result):
    """By how many attempts the tokens of two teams are made equal."""

    by: str  #: one of `CHOICES`
    tokens: tuple[float, float]  #: for an episode of the team, and of the single agent
    attempts: tuple[float, float]  #: of the team, and of the single agent
    wanted: tuple[float, float]  #: the attempts that the tokens pay for; more than were played cannot be made
    cut_off: float = 0.0  #: share of the single agent's episodes with an action that reached the limit of tokens

    @property
    def sentence(self) -> str:
        """All of it in words."""
        (team, single), (a, b) = self.tokens, self.attempts
        text = (
            f"Both keep {CHOICES[self.by]}: the team of {a:.3g} attempts with {team:,.0f} tokens each, the single "
            f"agent of {b:.3g} with {single:,.0f}."
        )
        if self.attempts != self.wanted:
            text += (
                f" The tokens would pay for {max(self.wanted):.3g} attempts; raise evaluate.test.samples to "
                f"{int(np.ceil(max(self.wanted)))} to allow them."
            )
        if self.cut_off:
            return (
                f"{text} In {100 * self.cut_off:.3g} % of its episodes an answer of the single agent was cut off; "
                "rollouts.max_new_tokens would allow longer ones."
            )
        return f"{text} No answer of the single agent was cut off, so it would write no more if it might."


def equal_effort(team: Episodes, single: Episodes, attempts: int, by: str) -> Effort:
    """Return the attempts that make the tokens equal, where the side with more tokens per episode makes ``attempts``.

    No side makes more attempts than the episodes per problem that were played.
    """
    tokens = (tokens_of(team), tokens_of(single))
    costs = [max(one, 1.0) for one in tokens]  # an attempt that writes nothing is not free
    wanted = tuple(attempts * max(costs) / one for one in costs)
    played = [min(_per_problem(records) for records in _groups(episodes)) for episodes in (team, single)]
    allowed = tuple(min(float(most), one) for most, one in zip(played, wanted, strict=True))
    cut = [record.details.get("cut_off", 0) > 0 for records in _groups(single) for record in records]
    return Effort(by, tokens, (allowed[0], allowed[1]), (wanted[0], wanted[1]), float(np.mean(cut)))


def compare_at_equal_effort(
    team: Episodes,
    single: Episodes,
    effort: Effort,
    settings: VerdictSettings,
    metric: str,
    info: Metric,
    names: tuple[str, str],
    faults: Sequence[str] = (),
) -> Comparison:
    """Compare the attempts that both keep, as `measure_tables`."""
    tables = [
        with_attempts(episodes, metric, effort.by, attempts, name)
        for episodes, attempts, name in zip((team, single), effort.attempts, names, strict=True)
    ]
    return measure_tables(tables[0], tables[1], settings, metric, info, names, faults)


def curve(
    episodes: Episodes, metric: str, info: Metric, by: str, level: float, seconds: float | None = None
) -> list[Point]:
    """Return a team with 1, 2, ... attempts, up to the number of its episodes per problem.

    Args:
        episodes: of one team.
        metric, info: its name and range.
        by: one of `CHOICES`.
        level: coverage of the intervals over problems, clustered by family.
        seconds: of one episode in the test, if known.
    """
    groups = _groups(episodes)
    tokens = tokens_of(episodes)
    points = []
    for attempts in range(1, min(_per_problem(records) for records in groups) + 1):
        table = with_attempts(episodes, metric, by, attempts, "the team")
        known = [i for i in range(len(table.problems)) if not np.isnan(table.values[:, i]).any()]
        if not known:
            return []
        values = {table.problems[i]: [float(table.values[:, i].mean())] for i in known}
        families = {table.problems[i]: table.families[i] for i in known}
        longest = float(np.mean([_longest(records, attempts) for records in groups]))
        mean = over_problems(values, families, level, info)
        points.append(
            Point(attempts, mean, attempts * tokens, longest, None if seconds is None else attempts * seconds)
        )
    return points


def _longest(records: Sequence[EpisodeRecord], attempts: int) -> float:
    """Return the expected length of the longest of some attempts that are made at the same time."""
    lengths: dict[str, list[float]] = {}
    for record in records:
        lengths.setdefault(record.problem, []).append(float(record.details.get("critical_path_tokens", record.tokens)))
    return float(np.mean([np.array(each) @ _greatest(each, min(attempts, len(each))) for each in lengths.values()]))


def _per_problem(records: Sequence[EpisodeRecord]) -> int:
    counts: dict[str, int] = {}
    for record in records:
        counts[record.problem] = counts.get(record.problem, 0) + 1
    return min(counts.values(), default=0)


def _groups(episodes: Episodes) -> list[Sequence[EpisodeRecord]]:
    return [episodes[seed] for seed in sorted(episodes)] if isinstance(episodes, Mapping) else [episodes]
