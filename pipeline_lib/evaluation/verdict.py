"""The verdict on a test: one label, three lines, and the whole test as one JSON value.

`compare` takes the episodes of two teams; `summarise_test` takes the selected team, base, last checkpoint and all
baselines as one family of comparisons.  `family` defines the labels, `comparison` computes the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pipeline_lib.environment_api.metrics import NO_METRICS, Metrics, describe
from pipeline_lib.evaluation.attempts import first_turns
from pipeline_lib.evaluation.comparison import Comparison, measure
from pipeline_lib.evaluation.effort import compare_at_equal_effort, equal_effort
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.family import decide, identical
from pipeline_lib.evaluation.plan import PlanCheck, problems_digest
from pipeline_lib.evaluation.results import EvaluationError, to_json
from pipeline_lib.evaluation.sentences import (
    Caveat,
    against_base,
    against_single_agent,
    in_line,
    of_comparisons,
    of_plan_and_looks,
)
from pipeline_lib.evaluation.summary import by_problem, cost_of_last_checkpoint, faults, other_runs, shrinkage, team
from pipeline_lib.evaluation.table import Episodes, tabulate

if TYPE_CHECKING:
    from pipeline_lib.settings.evaluate import EvaluateSettings, VerdictSettings

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
