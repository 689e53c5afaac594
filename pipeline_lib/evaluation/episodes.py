"""Episodes, from which all statistics are computed, and metrics over them: per problem, per team, and guards.

pass@k, pass^k and accuracy@k are the unbiased estimators over all n episodes of a problem, not the outcome of the first
k.  An episode that the infrastructure lost (reward None) is left out and counted, never scored as 0.  Every problem has
the same weight, whatever its number of episodes.

Guards: conditions that a checkpoint must meet to be selected, for any value of its primary metric.

A reward can be highest for a team that does nothing.  A guard compares one metric of a checkpoint with a limit, or with
the base team's value; `identical_share` detects teams that do the same in every episode.  Guards on metrics that the
environment does not report are listed instead of passing silently.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pipeline_lib.environment_api.metrics import GREATEST, NO_METRICS, Metrics, describe
from pipeline_lib.evaluation.results import EvaluationError, Result

if TYPE_CHECKING:
    from pipeline_lib.settings.evaluate import EvaluateSettings, Guard


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """The record of one episode."""

    problem: str  #: id of the problem
    family: str  #: cluster of the problem (the unit that is resampled)
    #: Number of the episode among those of its problem, from 0; with the same sampling seed, sample j of a problem is
    #: paired between any two teams.
    sample: int
    #: Undiscounted sum of the turns' rewards, or that of the last turn where turns are attempts at the same thing; None
    #: when the infrastructure failed.
    reward: float | None
    turns: int  #: turns played
    terms: Mapping[str, float]  #: the terms of this reward
    metrics: Mapping[str, float]  #: the last turn's metrics (``tests_passed``, ``all_passed``, ``cooperation``, ...)
    tokens: int  #: tokens sampled by all agents
    details: Mapping[str, Any] = field(default_factory=dict)  #: JSON-like facts for the report (scheme, status)
    #: Reward and metrics of every turn, where turns are attempts at the same thing and there were several; else empty.
    attempts: Sequence[Mapping[str, float]] = ()
    #: Digest of all that the agents wrote, without white space at the ends; empty: unknown.
    wrote: str = ""
    #: Transcript of the episode (`pipeline_lib.evaluation.run`), kept on request; else None.
    shown: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the record as a JSON object, one key per attribute; empty ones of the last three are left out."""
        row = dataclasses.asdict(self)
        return {key: value for key, value in row.items() if value or key not in ("attempts", "wrote", "shown")}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> EpisodeRecord:
        """Rebuild a record from `to_json`; unknown or missing keys raise TypeError."""
        return cls(**value)


#: The run of a guest that nobody trained.
BASE_GUEST = "base"


class Guest(NamedTuple):
    """An agent of another run in a team."""

    agent: str  #: name of the policy that is replaced
    run: int | str  #: the training seed it comes from, or `BASE_GUEST`


def guests(agents: Sequence[str], runs: Sequence[int | str]) -> list[Guest]:
    """Return every agent of every run in ``runs``."""
    return [Guest(agent, run) for run in runs for agent in agents]


_ROUNDING = 1e-9


def value_of(record: EpisodeRecord, metric: str) -> float | None:
    """Return a metric of one episode, ``reward`` among them; None if the infrastructure lost it (its reward is None).

    Raises:
        EvaluationError: the value is NaN or beyond `GREATEST`, or the episode has no such metric.
    """
    if record.reward is None:
        return None
    if metric == "reward":
        value = record.reward
    elif metric in record.metrics:
        value = record.metrics[metric]
    else:
        raise EvaluationError(
            f"episode {record.sample} of problem {record.problem} has no metric '{metric}'; it has: "
            f"reward, {', '.join(sorted(record.metrics)) or 'nothing else'}. Set evaluate.metric to one of these"
        )
    if not abs(value) <= GREATEST:
        raise EvaluationError(
            f"'{metric}' of episode {record.sample} of problem {record.problem} is {value}; it must be a "
            f"number from {-GREATEST:g} to {GREATEST:g} (a lost episode has reward None). Correct the environment and "
            "evaluate again"
        )
    return float(value)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Probability that at least one of k episodes succeeds, from c successes in n (arXiv 2107.03374, eq. 1).

    Raises:
        EvaluationError: not 0 <= c <= n or not 1 <= k <= n (k episodes cannot be drawn from fewer).
    """
    _check_counts(n, c, k)
    if n - c < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(n - c + 1, n + 1))


def pass_power_k(n: int, c: int, k: int) -> float:
    """Probability that all of k episodes succeed (pass^k), C(c, k) / C(n, k); reliability rather than luck.

    Raises:
        EvaluationError: as `pass_at_k`.
    """
    _check_counts(n, c, k)
    return math.prod((c - i) / (n - i) for i in range(k)) if c >= k else 0.0


def accuracy_at_k(values: Sequence[float], k: int) -> float:
    """Expected best value among k of the given episodes, drawn without replacement; pass@k for values 0 and 1.

    Order statistic i of n (from 1) is the greatest of k drawn with probability C(i-1, k-1) / C(n, k).  EvaluationError
    unless 1 <= k <= n.
    """
    ordered = sorted(values)
    n = len(ordered)
    _check_counts(n, n, k)
    total = math.comb(n, k)
    return math.fsum(value * (math.comb(i, k - 1) / total) for i, value in enumerate(ordered))


def _check_counts(n: int, c: int, k: int) -> None:
    if not 0 <= c <= n or not 1 <= k <= n:
        raise EvaluationError(f"k={k} of n={n} episodes with c={c} successes: need 0 <= c <= n and 1 <= k <= n")


def by_problem(records: Iterable[EpisodeRecord]) -> dict[str, list[EpisodeRecord]]:
    """Group episodes by problem, in order of problem id, leaving out those lost to the infrastructure."""
    groups: dict[str, list[EpisodeRecord]] = {}
    for record in sorted(records, key=lambda r: (r.problem, r.sample)):
        if record.reward is not None:
            groups.setdefault(record.problem, []).append(record)
    return groups


def check_ranges(records: Iterable[EpisodeRecord], metrics: Metrics) -> None:
    """Check that values are in the ranges that the environment declares: a share is shown in per cent.

    Raises:
        EvaluationError: one is not.
    """
    limits = {
        name: (-math.inf if info.low is None else info.low, math.inf if info.high is None else info.high)
        for name, info in metrics.items()
    }
    for record in records:
        for name, value in {**record.metrics, "reward": record.reward}.items():
            low, high = limits.get(name, (-math.inf, math.inf))
            if value is not None and not low - _ROUNDING <= value <= high + _ROUNDING:
                raise EvaluationError(
                    f"'{name}' of episode {record.sample} of problem {record.problem} is {value}, but the environment "
                    f"declares {low:g} to {high:g}; correct the value, or what `metrics` of the environment declares "
                    "(a share is 0 to 1)"
                )


def summarise_team(
    records: Sequence[EpisodeRecord], ks: Sequence[int] = (1,), metrics: Metrics = NO_METRICS
) -> dict[str, Any]:
    """Return all metrics of one team on one split.

    Values of ``ks`` (for pass@k, pass^k and accuracy@k) above the lowest number of episodes of any problem are left
    out.  ``metrics`` define success for pass@k, and the name of the best of k.

    Returns:
        ``overall`` (metric: mean over problems), ``problems`` (problem: metric: mean over its episodes), ``episodes``
            and ``lost`` (counts), ``tokens`` (sampled per episode), ``schemes`` and ``status`` (share of episodes by
            cooperation scheme and by status), ``details`` (mean per episode of numeric details, such as prompt tokens).
            Metrics are ``reward``, every metric that all episodes have, and, if a metric defines them, ``pass@k``,
            ``pass^k`` and the expected best of k, such as ``accuracy@k``.

    Raises:
        EvaluationError: there is no episode, or a value is not a number.
    """
    groups = by_problem(records)
    if not groups:
        raise EvaluationError("there is no episode to evaluate; check that evaluation ran and the sandbox is healthy")
    kept = [record for group in groups.values() for record in group]
    common = set.intersection(*(set(record.metrics) for record in kept))
    names = ["reward", *sorted(common)]
    least = min(len(group) for group in groups.values())
    problems: dict[str, dict[str, float]] = {}
    for problem, group in groups.items():
        row = {name: float(np.mean(values_of(group, name))) for name in names}
        for k in ks:
            if k <= least:
                row.update(_at_k(group, common, k, metrics))
        problems[problem] = row
    rows = list(problems.values())
    return {
        "overall": {name: float(np.mean([row[name] for row in rows])) for name in rows[0]},
        "problems": problems,
        "episodes": len(kept),
        "lost": len(records) - len(kept),
        "tokens": float(np.mean([record.tokens for record in kept])),
        "schemes": shares(kept, "schemes"),
        "status": shares(kept, "status"),
        "details": _numeric_details(kept),
    }


def values_of(records: Iterable[EpisodeRecord], metric: str) -> list[float]:
    """Return a metric of all episodes that were not lost."""
    return [value for record in records if (value := value_of(record, metric)) is not None]


def _at_k(group: Sequence[EpisodeRecord], reported: set[str], k: int, metrics: Metrics) -> dict[str, float]:
    row: dict[str, float] = {}
    for name, metric in metrics.items():
        if name not in reported:
            continue
        values = [record.metrics[name] for record in group]
        if metric.solves:
            solved = sum(value >= 1 for value in values)
            row[f"pass@{k}"] = pass_at_k(len(values), solved, k)
            row[f"pass^{k}"] = pass_power_k(len(values), solved, k)
        if metric.at_k:
            row[f"{metric.at_k}@{k}"] = accuracy_at_k(values, k)
    return row


def shares(records: Sequence[EpisodeRecord], detail: str) -> dict[str, float]:
    """Return the share of episodes with each value of a detail; an episode may have a list of values, or none."""
    counts: Counter[str] = Counter()
    for record in records:
        value = record.details.get(detail)
        counts.update(str(name) for name in (value if isinstance(value, list | tuple) else [value]) if name is not None)
    return {name: count / len(records) for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))}


def _numeric_details(records: Sequence[EpisodeRecord]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for record in records:
        for name, value in record.details.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                found.setdefault(name, []).append(value)
    return {name: float(np.mean(values)) for name, values in sorted(found.items())}


@dataclass(frozen=True, slots=True)
class Guarded(Result):
    """Result of the guards for one team."""

    failures: tuple[str, ...]  #: one sentence per guard that failed; empty when all passed
    not_measured: tuple[str, ...]  #: metrics of guards that the environment does not report
    identical: float  #: greatest share of episodes that are the same in every recorded respect, in [0, 1]

    @property
    def passed(self) -> bool:
        """Whether the team may be selected and be called better."""
        return not self.failures


def check_guards(
    records: Sequence[EpisodeRecord],
    base: Sequence[EpisodeRecord],
    settings: EvaluateSettings,
    metrics: Metrics,
) -> Guarded:
    """Check one team's episodes against the guards in the settings; ``base`` is empty if there is no base."""
    failures: list[str] = []
    missing: list[str] = []
    for guard in settings.guards:
        value = _mean(records, guard.metric)
        if value is None:
            missing.append(guard.metric)
            continue
        if sentence := _fault(guard, value, _mean(base, guard.metric), metrics):
            failures.append(sentence)
    identical = identical_share(records)
    if identical > settings.identical_share:
        failures.append(
            f"{100 * identical:.0f} % of its episodes are the same in every recorded respect (at most "
            f"{100 * settings.identical_share:.0f} % may be): it does the same for every problem"
        )
    return Guarded(tuple(failures), tuple(missing), identical)


def identical_share(records: Sequence[EpisodeRecord]) -> float:
    """Return the share of episodes that equal the most common one in reward, turns, terms, metrics, tokens and texts.

    Right answers to different problems may earn and cost the same; texts tell them from one that ignores the problem.
    With fewer than two problems the share is 0, because episodes of one problem may well be identical.
    """
    kept = [record for record in records if record.reward is not None]
    if len({record.problem for record in kept}) < 2:
        return 0.0
    prints = Counter(
        (r.reward, r.turns, r.tokens, tuple(sorted(r.terms.items())), tuple(sorted(r.metrics.items())), r.wrote)
        for r in kept
    )
    return max(prints.values()) / len(kept)


def _mean(records: Sequence[EpisodeRecord], metric: str) -> float | None:
    groups = by_problem(records)
    if not groups or any(metric not in record.metrics for group in groups.values() for record in group):
        return None
    return float(np.mean([np.mean(values_of(group, metric)) for group in groups.values()]))


def _fault(guard: Guard, value: float, base: float | None, metrics: Metrics) -> str:
    info = describe(guard.metric, metrics)
    sign = 1 if guard.better == "higher" else -1
    if guard.limit is not None and sign * (value - guard.limit) < 0:
        return (
            f"{info.label} is {info.text(value)}; it must be at {'least' if sign > 0 else 'most'} "
            f"{info.text(guard.limit)}"
        )
    if guard.slack is not None and base is not None and sign * (value - base) < -guard.slack:
        return (
            f"{info.label} is {info.text(value)}, worse than the base's {info.text(base)} by more than "
            f"{info.text(guard.slack)}"
        )
    return ""
