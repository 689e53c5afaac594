"""Parts of a test's summary: each team's metrics, results per problem, shrinkage, and sentences about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline_lib.environment_api.metrics import describe
from pipeline_lib.evaluation.comparison import Comparison
from pipeline_lib.evaluation.effects import interquartile_mean
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.losses import ends, filled
from pipeline_lib.evaluation.metrics import check_guards, summarise_team
from pipeline_lib.evaluation.plan import refuse_overlap
from pipeline_lib.evaluation.results import EvaluationError
from pipeline_lib.evaluation.table import Episodes, Table, problem_means, tabulate

if TYPE_CHECKING:
    from pipeline_lib.environment_api.metrics import Metrics
    from pipeline_lib.settings.evaluate import EvaluateSettings


def faults(
    selected: Mapping[int, Sequence[EpisodeRecord]],
    base: Sequence[EpisodeRecord],
    evaluate: EvaluateSettings,
    metrics: Metrics,
) -> list[str]:
    """Return the guards that fail on the test split, with the training seed."""
    return [
        f"training seed {seed}: {failure}"
        for seed, records in selected.items()
        for failure in check_guards(records, base, evaluate, metrics).failures
    ]


def other_runs(comparison: Comparison) -> str:
    """Return a sentence about other training runs."""
    test, info = comparison.new_runs, comparison.info
    if test.p is None or test.low is None or test.high is None or test.estimate is None:
        return f"Nothing can be said about other training runs: {test.degenerate}."
    level = f"{100 * test.level:.0f} % interval {info.difference(test.low)} to {info.difference(test.high)}"
    if test.low > 0 or test.high < 0:
        return f"The same can be expected of other training runs: mean {info.difference(test.estimate)} ({level})."
    return f"Other training runs may well show no difference: mean {info.difference(test.estimate)} ({level})."


def cost_of_last_checkpoint(against_last: Comparison) -> str:
    """Return a sentence about the effect of taking the last checkpoint."""
    info, difference = against_last.info, against_last.difference
    if difference.estimate is None:
        return against_last.sentence
    if difference.low is None or difference.high is None:
        return f"Taking the last checkpoint instead would change the result by {info.difference(-difference.estimate)}."
    return (
        f"Taking the last checkpoint instead would change the result by {info.difference(-difference.estimate)} "
        f"({100 * difference.level:.0f} % interval {info.difference(-difference.high)} to "
        f"{info.difference(-difference.low)})."
    )


def team(episodes: Episodes, evaluate: EvaluateSettings, metrics: Metrics) -> dict[str, Any]:
    """Return one team's metrics: means over training seeds, interquartile mean, counts, cooperation schemes.

    ``least`` is the mean of the primary metric with every lost episode at the end of its range, or of what was seen.
    """
    table = tabulate(episodes, evaluate.metric)
    lowest = ends((table,), describe(evaluate.metric, metrics))[0]
    groups = list(episodes.values()) if isinstance(episodes, Mapping) else [episodes]
    summaries = [summarise_team(group, evaluate.pass_k, metrics) for group in groups]
    names = set.intersection(*(set(summary["overall"]) for summary in summaries))
    return {
        "metrics": {name: float(np.mean([s["overall"][name] for s in summaries])) for name in sorted(names)},
        "episodes": sum(summary["episodes"] for summary in summaries),
        "lost": sum(summary["lost"] for summary in summaries),
        "tokens": float(np.mean([summary["tokens"] for summary in summaries])),
        **{key: _mean_shares([s[key] for s in summaries]) for key in ("schemes", "status", "details")},
        "iqm": interquartile_mean(_complete(table)),
        "least": float(np.nanmean(np.nanmean(problem_means(filled(table, lowest)), axis=1))),
    }


def _mean_shares(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Average mappings over training seeds; a missing name counts 0."""
    names = sorted({name for part in parts for name in part})
    return {name: float(np.mean([part.get(name, 0.0) for part in parts])) for name in names}


def by_problem(teams: Mapping[str, Table]) -> dict[str, dict[str, float]]:
    """Return the mean by problem and team, over training seeds."""
    rows: dict[str, dict[str, float]] = {}
    for name, table in teams.items():
        for problem, values in zip(table.problems, problem_means(table).T, strict=True):
            if not np.isnan(values).any():
                rows.setdefault(problem, {})[name] = float(values.mean())
    return dict(sorted(rows.items()))


def shrinkage(
    validation: Mapping[int, Sequence[EpisodeRecord]], test: Mapping[int, Sequence[EpisodeRecord]], metric: str
) -> dict[str, float]:
    """Return the selected checkpoints' validation mean and their test mean."""
    tables = {
        "validation": tabulate(validation, metric, "the validation episodes"),
        "test": tabulate(test, metric, "the test episodes"),
    }
    refuse_overlap({name: table.problems for name, table in tables.items()})
    return {name: float(_complete(table).mean()) for name, table in tables.items()}


def _complete(table: Table) -> np.ndarray:
    """Return (seeds, problems) means on the problems that every training seed has."""
    means = problem_means(table)
    there = ~np.isnan(means).any(axis=0)
    if not there.any():
        raise EvaluationError("no problem has an episode that was not lost; evaluate again")
    return means[:, there]
