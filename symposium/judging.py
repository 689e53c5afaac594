"""Compares teams on validation problems with the statistics of the chain, and plans larger experiments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipeline_lib.environment_api.metrics import describe
from pipeline_lib.evaluation import planning, verdict
from pipeline_lib.evaluation.episodes import check_guards
from pipeline_lib.evaluation.sentences import no_range
from pipeline_lib.evaluation.table import Episodes
from pipeline_lib.problems.splits import load_manifest
from pipeline_lib.settings.base import result_settings
from symposium.arguments import check_list, check_type, check_whole
from symposium.experiments import Experiment
from symposium.results import Comparison, Evaluation, Requirements

#: One evaluation, or those of several training runs with different seeds.
Evaluations = Evaluation | Sequence[Evaluation]


def compare(first: Evaluations, second: Evaluations, metric: str | None = None) -> Comparison:
    """Compare two teams on the problems that both played, by the statistics of the chain (docs/statistics.md).

    Episodes are paired by problem and sample, and problems of one family count as one unit.  ``verdict.margin`` is the
    smallest difference that would matter.  On validation problems a selected team looks better than it is, so a claim
    needs the chain's test.

    Args:
        first: an evaluation, or those of several training runs.
        second: an evaluation, or several, of the other team.
        metric: by default the experiment's primary one.

    Raises:
        TypeError: something is no evaluation.
        ValueError: there are no evaluations, two of them are of one training seed, or their experiments differ in
            environment, problems or sandbox.
        EvaluationError: no problem was played by both, or a value is not a number.
    """
    a, b = _list(first), _list(second)
    experiment = a[0].team.experiment
    params = experiment.params
    for section in ("environment", "problems", "sandbox"):
        own = result_settings(getattr(params, section))
        if any(result_settings(getattr(one.team.experiment.params, section)) != own for one in (*a, *b)):
            raise ValueError(f"the teams are of experiments that differ in {section}, so they were judged differently")
    guarded = [check_guards(one.episodes, b[0].episodes, params.evaluate, experiment.metrics) for one in a]
    found = verdict.compare(
        _episodes(a),
        _episodes(b),
        params.verdict,
        metric or params.evaluate.metric,
        (_title(a), _title(b)),
        tuple(dict.fromkeys(fault for one in guarded for fault in one.failures)),
        a[0].metrics,
        _where(experiment, (*a, *b)),
    )
    return Comparison(found)


def plan(
    first: Evaluations,
    second: Evaluations,
    differences: Sequence[float] = (0.02, 0.05, 0.1),
    *,
    samples: Sequence[int] = (1, 4, 16),
    runs: Sequence[int] = (1, 3, 5),
    comparisons: int = 1,
) -> Requirements:
    """Compute how many problems, episodes and training runs a wanted difference needs, with two teams as a pilot.

    Args:
        first: evaluations of a trained team, at least two episodes per problem.
        second: evaluations of the team that it will be compared with.
        differences: wanted true differences, in the metric's unit.
        samples: episodes per problem to consider.
        runs: training runs to consider.
        comparisons: size of the family that is corrected for (Bonferroni).

    Raises:
        TypeError: something is no evaluation, or a difference is no number.
        ValueError: a list is empty, or a number that must be at least 1 is less or no integer.
        EvaluationError: fewer than two problems in common, or one episode per problem.
    """
    for wanted in check_list("differences", differences, "at least one number"):
        check_type("difference", wanted, (int, float), "a number")
    for name, values in (("samples", samples), ("runs", runs), ("comparisons", [comparisons])):
        for value in check_list(name, values, "at least one integer"):
            check_whole(name, value, 1)
    experiment = _list(first)[0].team.experiment
    params = experiment.params
    pilot = planning.variances(_episodes(_list(first)), _episodes(_list(second)), params.evaluate.metric)
    rows = planning.requirements(
        pilot,
        differences,
        samples,
        runs,
        params.verdict.alpha / comparisons,
        params.verdict.power,
        -(-params.train.steps // params.train.checkpoint_every),
    )
    info = describe(params.evaluate.metric, _list(first)[0].metrics)
    return Requirements(pilot, tuple(rows), no_range(info))


def _where(experiment: Experiment, evaluations: Sequence[Evaluation]) -> str:
    """Return what the problems of evaluations are called."""
    splits = load_manifest(experiment.problems_folder())["splits"]
    played = {episode.problem for one in evaluations for episode in one.episodes}
    for split, word in (("validation", "validation"), ("train", "training")):
        if played <= set(splits[split]["ids"]):
            return word
    return "chosen"


def _list(given: Evaluations) -> list[Evaluation]:
    if not isinstance(given, Evaluation | Iterable):
        raise TypeError(f"{given!r} is no evaluation; expected one or several results of `symposium.evaluate`")
    found = [given] if isinstance(given, Evaluation) else check_list("evaluations", given, "at least one evaluation")
    for one in found:
        check_type("evaluation", one, Evaluation, "a result of `symposium.evaluate`")
    return found


def _episodes(given: Sequence[Evaluation]) -> Episodes:
    """Return the episodes by training seed; those of an untrained team belong to none."""
    seeds = [one.team.seed for one in given]
    if len(set(seeds)) < len(seeds):
        raise ValueError("two evaluations are of the same training seed; a training run counts once")
    if seeds == [None]:
        return given[0].episodes
    if None in seeds:
        raise ValueError("an untrained team stands among trained ones; compare it with them instead")
    return {seed: one.episodes for seed, one in zip(seeds, given, strict=True) if seed is not None}


def _title(given: Sequence[Evaluation]) -> str:
    return given[0].team.title if len(given) == 1 else f"the team of {len(given)} training runs"
