"""Holm's correction for several tests.

A test without p value (None) stays in the family as p = 1; leaving it out would weaken the correction of the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline_lib.evaluation.results import EvaluationError


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return Holm's (1979) adjusted p values, in input order; they control the family-wise error rate."""
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


def _filled(p_values: Sequence[float | None]) -> np.ndarray:
    filled = np.array([1.0 if p is None else p for p in p_values])
    if filled.size and not ((filled >= 0) & (filled <= 1)).all():
        raise EvaluationError(f"p values must lie in [0, 1], got {list(p_values)}")
    return filled
