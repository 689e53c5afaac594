"""The verdict on a test: one label per comparison, three lines, and the whole test as one JSON value.

`compare` takes the episodes of two teams; `summarise_test` takes the selected team, base, last checkpoint and all
baselines as one family of comparisons.  `comparison` computes the numbers.

A verdict is a claim about the tested teams on new problems of the same kind; `Comparison.new_runs` is the wider claim
about other training runs.  All comparisons of a test form one family: Holm's correction is applied to the p values of
the differences, and separately to those of equivalence.  A real difference that is smaller than the margin is
EQUIVALENT: the margin is the smallest difference that matters by the settings. "p > 0.05" alone is never "no effect".

An uninformative comparison is left outside the family, because it would reduce the power of the others.  A rule in the
plan decides this before the test split is used; such comparisons are reported with the reason in place of a verdict.

Detectable differences are computed at the level of Holm's correction: alpha / (m - r) in a family of m comparisons of
which r others are significant.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline_lib.environment_api.metrics import NO_METRICS, Metrics, describe
from pipeline_lib.evaluation.clusters import interquartile_mean
from pipeline_lib.evaluation.comparison import (
    EQUIVALENT,
    IMPROVED,
    INCONCLUSIVE,
    UNTESTED,
    WORSE,
    Comparison,
    SeedResult,
    basis,
    bounds,
    ends,
    filled,
    measure,
)
from pipeline_lib.evaluation.effort import compare_at_equal_effort, equal_effort
from pipeline_lib.evaluation.episodes import EpisodeRecord, check_guards, summarise_team
from pipeline_lib.evaluation.evidence import critical
from pipeline_lib.evaluation.plan import PlanCheck, problems_digest, refuse_overlap
from pipeline_lib.evaluation.planning import beyond_missing, detectable, problems_needed, unbiased
from pipeline_lib.evaluation.results import EvaluationError, holm, rejections, to_json
from pipeline_lib.evaluation.sentences import (
    Caveat,
    against_base,
    against_single_agent,
    guards,
    in_line,
    of_comparisons,
    of_plan_and_looks,
    outside_family,
    sentence,
)
from pipeline_lib.evaluation.table import Episodes, Table, problem_means, tabulate
from pipeline_lib.evaluation.tested_teams import first_turns

if TYPE_CHECKING:
    from pipeline_lib.environment_api.metrics import Metrics
    from pipeline_lib.settings.evaluate import EvaluateSettings, VerdictSettings


def decide(measured: Mapping[str, Comparison], outside: Mapping[str, str] | None = None) -> dict[str, Comparison]:
    """Correct a family of comparisons for their number and give each its verdict and sentence.

    ``outside`` has the comparisons outside the family, and why; unknown names are ignored.
    """
    outside = outside or {}
    family = {name: found for name, found in measured.items() if name not in outside}
    names = list(family)
    p_values = holm([family[name].difference.p for name in names])
    equivalences = holm([family[name].equivalence.p for name in names])
    decided = {}
    for name, p, q in zip(names, p_values, equivalences, strict=True):
        others = [family[other].difference.p for other in names if other != name]
        comparison = dataclasses.replace(
            _with_power(family[name], family[name].alpha / (len(names) - rejections(others, family[name].alpha))),
            family_size=len(names),
            p_adjusted=p,
            equivalence_p_adjusted=q,
            per_seed=_adjusted_seeds(family[name].per_seed, len(names)),
        )
        verdict = verdict_of(comparison)
        comparison = dataclasses.replace(comparison, verdict=verdict)
        decided[name] = dataclasses.replace(comparison, sentence=sentence(comparison))
    shown = {name: untested(measured[name], why) for name, why in outside.items() if name in measured}
    return {name: shown.get(name) or decided[name] for name in measured}


def untested(comparison: Comparison, reason: str) -> Comparison:
    """Return a comparison outside the family, with the reason in place of a verdict."""
    without = dataclasses.replace(comparison, verdict=UNTESTED, family_size=0)
    return dataclasses.replace(without, sentence=outside_family(without, reason))


def identical(comparison: Comparison, reason: str) -> Comparison:
    """Return the verdict on two teams that are known to be identical."""
    text = f"{EQUIVALENT}: {reason[:1].lower()}{reason[1:]}{guards(comparison)}"
    return dataclasses.replace(comparison, verdict=EQUIVALENT, degenerate="", sentence=text, family_size=0)


def _with_power(c: Comparison, alpha: float) -> Comparison:
    """Add the detectable difference, and the number of problems that the margin needs, at level ``alpha``."""
    se, df, reach = c.difference.se, c.difference.df, c.info.reach
    if se is None or df is None or math.isinf(reach):
        return c
    variance = se**2 * c.problems  # of a problem's difference, clustering included
    per_family = c.problems / (df + 1)
    try:
        needed = problems_needed(c.margin, variance, alpha, c.power, per_family, reach, c.alpha)
    except EvaluationError:  # more than anybody could have: no reason to have no verdict
        needed = None
    return dataclasses.replace(
        c,
        detectable=max(
            detectable(unbiased(se, df), df, alpha, c.power, critical(df, c.evidence, alpha)),
            beyond_missing(unbiased(se, df), c.families, c.power, reach, c.alpha),
        ),
        problems_for_margin=needed,
    )


def _adjusted_seeds(runs: tuple[SeedResult, ...], family_size: int) -> tuple[SeedResult, ...]:
    """Correct the p values of single training runs: Holm over the runs, then times the size of the family."""
    corrected = holm([run.difference.p for run in runs])
    return tuple(
        dataclasses.replace(run, p_adjusted=None if p is None else min(1.0, p * family_size))
        for run, p in zip(runs, corrected, strict=True)
    )


def verdict_of(c: Comparison) -> str:
    """Return the verdict on a comparison whose p values are corrected."""
    if c.difference.estimate is None or c.one_observation:
        return INCONCLUSIVE
    if (found := basis(c)) is not None:
        verdict = found.verdict()
    elif (limits := bounds(c)) is not None:
        low, high = limits
        same = -c.margin < low and high < c.margin
        verdict = EQUIVALENT if same else WORSE if high < 0 else IMPROVED if low > 0 else INCONCLUSIVE
    else:
        verdict = INCONCLUSIVE
    return INCONCLUSIVE if verdict == IMPROVED and c.faults else verdict


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


SELECTED, BASE, LAST, FIRST_TURN = "selected", "base", "last", "first turn"
SINGLE_AGENT = "single-agent GRPO"
CROSS_PLAY = "cross-play"
EQUAL_EFFORT = "single agent at equal tokens"


def compare(
    a: Episodes,
    b: Episodes,
    settings: VerdictSettings,
    metric: str = "reward",
    names: tuple[str, str] = ("the first team", "the second team"),
    faults: Sequence[str] = (),
    metrics: Metrics = NO_METRICS,
    where: str = "held-out",
) -> Comparison:
    """Compare two teams on the same problems, as a family of one comparison.

    ``a`` and ``b`` hold episodes by training seed, or a plain list for a team that no training seed belongs to.  A
    greater ``metric`` is better.  With any ``faults`` (guards that the first team fails) the verdict is never IMPROVED.
    ``names`` and ``where`` (which problems) are words of the sentence.

    Raises:
        EvaluationError: no common problems, a value that is not a number, or an episode twice.
    """
    return decide({"": measure(a, b, settings, metric, names, faults, metrics, where)})[""]


def summarise_test(
    selected: Mapping[int, Sequence[EpisodeRecord]],
    base: Sequence[EpisodeRecord],
    last: Mapping[int, Sequence[EpisodeRecord]],
    baselines: Mapping[str, Episodes],
    selected_steps: Mapping[int, int],
    last_steps: Mapping[int, int],
    evaluate: EvaluateSettings,
    verdict: VerdictSettings,
    validation: Mapping[int, Sequence[EpisodeRecord]] | None = None,
    outside: Mapping[str, str] | None = None,
    metrics: Metrics = NO_METRICS,
    has_attempts: bool = False,
    chosen_by: str = "",
) -> dict[str, Any]:
    """Compare the selected team with all others on the test split, and decide the verdicts.

    Args:
        selected: test episodes of the selected checkpoint, by training seed.
        base: test episodes of the base.
        last: test episodes of the last checkpoint, by training seed.
        baselines: further teams by name, for example ``{"single-agent GRPO": {0: episodes}}``; a plain list for one
            that was not trained.
        selected_steps: step selected, by training seed.
        last_steps: last step, by training seed.
        evaluate: metric, guards, k of pass@k.
        verdict: alpha, margin, power, resamples, seed.
        validation: validation episodes of the selected checkpoints, for the shrinkage from validation to test.
        outside: comparisons that the plan leaves outside the family, and why.  The last checkpoint is outside if and
            only if it is the selected one in every training run, which is known before the test.
        metrics: the environment's.
        has_attempts: turns are attempts at the same thing, and an episode can have several; the selected team is then
            compared with its own first turn in the same episodes.
        chosen_by: how one of several attempts is chosen (`effort.CHOICES`); the selected team is then also compared
            with the single agent at equal tokens, with ``evaluate.equal_effort`` attempts.

    Returns:
        A JSON object: ``verdict`` of the primary comparison (against the base), ``lines`` (three: against the base,
        against the single agent, number of caveats), ``caveats`` (each a `Caveat`), ``comparisons`` (by
        name, each a `Comparison`), ``teams`` (metrics overall, IQM with interval), ``problems`` (mean of the primary
        metric by problem and team), ``shrinkage``, ``price_of_the_default``, ``design`` (the actual design, from
        episodes and settings) and ``plan``, which says that there is none until `add_plan_and_looks` adds it.

    Raises:
        EvaluationError: no test episodes, no common problems, a value that is not a number, or validation problems
            among the test problems.
    """
    if not selected:
        raise EvaluationError("there are no test episodes of a selected checkpoint; run the test stage first")
    teams: dict[str, Episodes] = {SELECTED: selected, BASE: base, LAST: last, **baselines}
    failed = faults(selected, base, evaluate, metrics)
    names = {
        BASE: "the base",
        LAST: "the last checkpoint",
        FIRST_TURN: "its own first turn",
        SINGLE_AGENT: "the trained single agent",
        CROSS_PLAY: "teams with an agent of another training run",
        EQUAL_EFFORT: "the trained single agent at equal tokens",
    }
    own = {FIRST_TURN: {seed: first_turns(episodes) for seed, episodes in selected.items()}} if has_attempts else {}
    measured = {
        name: measure(
            selected, episodes, verdict, evaluate.metric, ("the selected team", names.get(name, name)), failed, metrics
        )
        for name, episodes in {**teams, **own}.items()
        if name != SELECTED
    }
    effort = equal_effort(selected, baselines[SINGLE_AGENT], evaluate.equal_effort, chosen_by) if chosen_by else None
    if effort is not None:
        pair, info = ("the selected team", names[EQUAL_EFFORT]), describe(evaluate.metric, metrics)
        measured[EQUAL_EFFORT] = compare_at_equal_effort(
            selected, baselines[SINGLE_AGENT], effort, verdict, evaluate.metric, info, pair, failed
        )
    planned = dict(outside or {})
    same = dict(selected_steps) == dict(last_steps)
    left_out = {name: why for name, why in planned.items() if name != LAST}
    decided = decide(measured, left_out | {LAST: planned.get(LAST, "")} if same else left_out)
    default = cost_of_last_checkpoint(decided[LAST])
    if same:
        default = "The checkpoint selected is the last one in every training run, so the default costs nothing."
        decided[LAST] = identical(decided[LAST], default)
    if effort is not None:
        of_effort = decided[EQUAL_EFFORT]
        decided[EQUAL_EFFORT] = replace(of_effort, sentence=f"{of_effort.sentence} {effort.sentence}")
    primary, single = decided[BASE], decided.get(SINGLE_AGENT)
    caveats = to_json(of_comparisons((primary, single)))
    return {
        "verdict": primary.verdict,
        "lines": [against_base(primary), against_single_agent(single), in_line(caveats)],
        "caveats": caveats,
        "metric": evaluate.metric,
        "difference": primary.difference.estimate,
        "low": primary.difference.low,
        "high": primary.difference.high,
        "p": primary.p_adjusted,
        "hedges_g": primary.effect.g,
        "other_runs": other_runs(primary),
        "price_of_the_default": default,
        "comparisons": to_json(decided),
        "teams": {name: team(episodes, evaluate, metrics) for name, episodes in teams.items()},
        "problems": by_problem({name: tabulate(found, evaluate.metric, name) for name, found in teams.items()}),
        "equal_effort": to_json(effort),
        "shrinkage": shrinkage(validation, selected, evaluate.metric) if validation else None,
        "design": {
            "metric": evaluate.metric,
            "select": evaluate.select,
            "alpha": verdict.alpha,
            "margin": verdict.margin,
            "power": verdict.power,
            "correction": "holm",
            "resamples": verdict.resamples,
            "resampling_seed": verdict.seed,
            "training_seeds": sorted(selected),
            "selected": {str(seed): step for seed, step in sorted(selected_steps.items())},
            "test_problems": problems_digest(record.problem for records in selected.values() for record in records),
            "test_samples": 1 + max(record.sample for records in selected.values() for record in records),
            "comparisons": list(measured),
            "outside": planned,
            "stop_rule": "fixed",
        },
        "plan": PlanCheck(False, ("there was no plan",), (), "").to_json(),
    }


def add_plan_and_looks(
    result: Mapping[str, Any], check: PlanCheck, looks: Mapping[str, Any], further: Sequence[Caveat] = ()
) -> dict[str, Any]:
    """Add the plan check and the looks to the ``result`` of `summarise_test`, and all caveats to its headline.

    ``looks`` are of `correct_for_looks` or `not_counted`; ``further`` are other caveats, for example training runs that
    a monitor ended.
    """
    names = {name: found["names"][1] for name, found in result["comparisons"].items() if name in (BASE, SINGLE_AGENT)}
    caveats = [*to_json(of_plan_and_looks(check, looks, names)), *result["caveats"], *to_json(list(further))]
    return {
        **result,
        "lines": [*result["lines"][:2], in_line(caveats)],
        "caveats": caveats,
        "plan": check.to_json(),
        "looks": dict(looks),
    }
