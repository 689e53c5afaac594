"""Corrections for several tests: Holm for the verdicts, Dunnett for all against one.

A test without p value (None) stays in the family as p = 1; leaving it out would weaken the correction of the others.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from pipeline_lib.evaluation.results import EvaluationError


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return Holm's (1979) adjusted p values, in input order; they control the family-wise error rate.

    statsmodels has them, but runs the garbage collector in every call, which takes longer than the rest of a verdict.
    """
    filled = _filled(p_values)
    order = np.argsort(filled, kind="stable")
    adjusted = np.empty(filled.size)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(filled[order] * np.arange(filled.size, 0, -1)))
    return [None if p is None else float(q) for p, q in zip(p_values, adjusted, strict=True)]


def rejections(p_values: Sequence[float | None], alpha: float) -> int:
    """Return how many of these tests Holm rejects in a family with one more test, which is not rejected."""
    for count, p in enumerate(sorted(1.0 if p is None else p for p in p_values)):
        if p > alpha / (len(p_values) + 1 - count):
            return count
    return len(p_values)


def dunnett(treatments: Mapping[str, ArrayLike], control: ArrayLike, seed: int) -> dict[str, float | None]:
    """Return Dunnett's two-sided p values of each treatment against one control (equal variances, independent arms).

    Args:
        treatments: observations by name.
        control: observations of the control.
        seed: seed of the quasi-Monte-Carlo integration.

    Returns:
        p by name; None if nothing varies or an arm has fewer than two observations.
    """
    arms = [np.asarray(values, float) for values in treatments.values()]
    base = np.asarray(control, float)
    everything = [*arms, base]
    if min(arm.size for arm in everything) < 2 or all(np.ptp(arm) == 0 for arm in everything):
        return dict.fromkeys(treatments)
    with warnings.catch_warnings():
        # scipy warns about an arm without variation, which is valid here because the variance is pooled.
        warnings.filterwarnings("ignore", "Precision loss occurred", RuntimeWarning)
        found = stats.dunnett(*arms, control=base, rng=np.random.default_rng(seed))
    return {name: float(p) for name, p in zip(treatments, found.pvalue, strict=True)}


def _filled(p_values: Sequence[float | None]) -> np.ndarray:
    filled = np.array([1.0 if p is None else p for p in p_values])
    if filled.size and not ((filled >= 0) & (filled <= 1)).all():
        raise EvaluationError(f"p values must lie in [0, 1], got {list(p_values)}")
    return filled
