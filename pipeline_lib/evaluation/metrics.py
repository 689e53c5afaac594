"""What a team achieved: metrics over episodes, per problem and overall.

pass@k, pass^k and accuracy@k are the unbiased estimators over all n episodes of a problem, not the outcome of the
first k.  An episode lost to the infrastructure (reward None) is left out and counted, never scored as 0.  Every problem
counts the same, however many episodes it has.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.results import EvaluationError


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """How a metric is named and shown.

    Attributes:
        label: axis label and noun in sentences.
        share: the metric is a fraction in [0, 1] and is shown in per cent.
        low: least possible value, or None when unknown.
        high: greatest possible value, or None when unknown.
    """

    label: str
    share: bool = False
    low: float | None = None
    high: float | None = None

    def text(self, value: float) -> str:
        """Return a value with its unit, for example ``71.3 %``."""
        return f"{100 * value:.1f} %" if self.share else f"{value:.3g}"

    def difference(self, value: float) -> str:
        """Return a difference with sign and unit, for example ``+12.4 points``."""
        if self.share:
            return f"{round(100 * value, 1) + 0.0:+.1f} points"  # adding 0 turns -0.0 into +0.0
        return f"{value + 0.0:+.3g}"


_SHARES = {
    "tests_passed": "hidden tests passed",
    "all_passed": "all tests passed",
    "cooperation": "episodes with cooperation",
    "syntax": "programs that parse",
    "structure": "all functions defined",
    "calls_helper": "helper called",
    "ignores_helper": "helper's value ignored",
    "thin_wrapper": "thin wrappers",
    "fairness": "fairness",
    "deadlock": "episodes in deadlock",
    "livelock": "episodes in livelock",
    "meals_share": "meals, of the most possible",
    "minimum_share": "fewest meals, of the most possible",
    "wait_share": "decisions to wait",
    "invalid_share": "decisions that cannot be read",
    "failed_share": "grabs that fail",
    "starvation": "philosophers without a meal",
    "survived": "horizon before a deadlock",
}


def describe(metric: str) -> MetricInfo:
    """Return how ``metric`` is named and shown; unknown ones are plain numbers under their own name."""
    if metric in _SHARES:
        return MetricInfo(_SHARES[metric], share=True, low=0.0, high=1.0)
    return MetricInfo(metric.replace("_", " "))


def value_of(record: EpisodeRecord, metric: str) -> float | None:
    """Return a metric of one episode; ``reward`` is the episode's reward, others come from its metrics.

    Returns:
        None when the infrastructure failed (the record's reward is None).

    Raises:
        EvaluationError: the value is NaN or infinite, or the episode has no such metric.
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
    if not math.isfinite(value):
        raise EvaluationError(
            f"'{metric}' of episode {record.sample} of problem {record.problem} is {value}; a reward that is not a "
            "number is a defect of the environment (a lost episode has reward None). Correct it and evaluate again"
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
    """Expected best value among k of the given episodes, drawn without replacement.

    With values 0 and 1 this is pass@k.  Order statistic i of n (from 1) is the greatest of k drawn with probability
    C(i-1, k-1) / C(n, k).

    Raises:
        EvaluationError: not 1 <= k <= number of values.
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


def summarise_team(records: Sequence[EpisodeRecord], ks: Sequence[int] = (1,)) -> dict[str, Any]:
    """Return all metrics of one team on one split.

    Args:
        records: its episodes.
        ks: for which k to give pass@k, pass^k and accuracy@k; those above the least number of episodes that a problem
            has are left out.

    Returns:
        ``overall`` (metric: mean over problems), ``problems`` (problem: metric: mean over its episodes), ``episodes``
        and ``lost`` (counts), ``tokens`` (sampled per episode), ``schemes`` and ``status`` (share of episodes by
        cooperation scheme and by status), ``details`` (mean per episode of numeric details, such as prompt tokens).
        Metrics are ``reward``, everything the environment reports for every episode, and, where it reports
        ``all_passed`` and ``tests_passed``, ``pass@k``, ``pass^k``, ``accuracy@k`` and ``cooperation@k`` (expected best
        cooperation among k).

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
        row = {name: float(np.mean([_number(record, name) for record in group])) for name in names}
        for k in ks:
            if k <= least:
                row.update(_at_k(group, common, k))
        problems[problem] = row
    overall = {name: float(np.mean([row[name] for row in problems.values()])) for name in next(iter(problems.values()))}
    return {
        "overall": overall,
        "problems": problems,
        "episodes": len(kept),
        "lost": len(records) - len(kept),
        "tokens": float(np.mean([record.tokens for record in kept])),
        "schemes": shares(kept, "schemes"),
        "status": shares(kept, "status"),
        "details": _numeric_details(kept),
    }


def _number(record: EpisodeRecord, metric: str) -> float:
    value = value_of(record, metric)
    assert value is not None  # by_problem has left those out
    return value


def _at_k(group: Sequence[EpisodeRecord], metrics: set[str], k: int) -> dict[str, float]:
    row: dict[str, float] = {}
    n = len(group)
    if "all_passed" in metrics:
        solved = sum(record.metrics["all_passed"] >= 1 for record in group)
        row[f"pass@{k}"] = pass_at_k(n, solved, k)
        row[f"pass^{k}"] = pass_power_k(n, solved, k)
    if "tests_passed" in metrics:
        row[f"accuracy@{k}"] = accuracy_at_k([record.metrics["tests_passed"] for record in group], k)
    if "cooperation" in metrics:
        row[f"cooperation@{k}"] = accuracy_at_k([record.metrics["cooperation"] for record in group], k)
    return row


def shares(records: Sequence[EpisodeRecord], detail: str) -> dict[str, float]:
    """Return which share of episodes has each value of a detail; an episode may have a list of them, or none."""
    counts: dict[str, int] = {}
    for record in records:
        value = record.details.get(detail)
        for name in value if isinstance(value, list | tuple) else [value]:
            if name is not None:
                counts[str(name)] = counts.get(str(name), 0) + 1
    return {name: count / len(records) for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))}


def _numeric_details(records: Sequence[EpisodeRecord]) -> dict[str, float]:
    names = sorted({name for record in records for name, value in record.details.items() if _is_number(value)})
    return {
        name: float(np.mean([r.details[name] for r in records if _is_number(r.details.get(name))])) for name in names
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
