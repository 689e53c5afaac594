"""The verdict on each comparison of a family: IMPROVED, WORSE, EQUIVALENT or INCONCLUSIVE.

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
from collections.abc import Mapping

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
)
from pipeline_lib.evaluation.evidence import critical
from pipeline_lib.evaluation.planning import beyond_missing, detectable, problems_needed, unbiased
from pipeline_lib.evaluation.results import EvaluationError, holm, rejections
from pipeline_lib.evaluation.sentences import guards, outside_family, sentence


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
