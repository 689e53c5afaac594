"""Guards: conditions that a checkpoint must meet to be selected, for any value of its primary metric.

A reward can be highest for a team that does nothing.  A guard compares one metric of a checkpoint with a limit, or with
the base team's value; `identical_share` detects teams that do the same in every episode.  Guards on metrics that the
environment does not report are listed instead of passing silently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipeline_lib.environment_api.metrics import Metrics, describe
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.metrics import by_problem, value_of
from pipeline_lib.evaluation.results import Result

if TYPE_CHECKING:
    from pipeline_lib.settings.evaluate import EvaluateSettings, Guard


@dataclass(frozen=True, slots=True)
class Guarded(Result):
    """Result of the guards for one team.

    Attributes:
        failures: one sentence per guard that failed; empty when all passed.
        not_measured: metrics of guards that the environment does not report.
        identical: greatest share of episodes that are the same in every recorded respect, in [0, 1].
    """

    failures: tuple[str, ...]
    not_measured: tuple[str, ...]
    identical: float

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
    """Return the share of episodes that equal the most common one in reward, turns, terms, metrics and tokens.

    With fewer than two problems the share is 0, because episodes of one problem may well be identical.
    """
    kept = [record for record in records if record.reward is not None]
    if len({record.problem for record in kept}) < 2:
        return 0.0
    prints = Counter(
        (r.reward, r.turns, r.tokens, tuple(sorted(r.terms.items())), tuple(sorted(r.metrics.items()))) for r in kept
    )
    return max(prints.values()) / len(kept)


def _mean(records: Sequence[EpisodeRecord], metric: str) -> float | None:
    groups = by_problem(records)
    if not groups or any(metric not in record.metrics for group in groups.values() for record in group):
        return None
    means = [np.mean([value_of(record, metric) or 0.0 for record in group]) for group in groups.values()]
    return float(np.mean(means))


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
