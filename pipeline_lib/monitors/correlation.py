"""Rank correlation of two series of updates, with an interval that allows for autocorrelation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pipeline_lib.monitors.reading import Z

Floats = npt.NDArray[np.float64]

#: The effective number of updates is never taken to be smaller: Fisher's interval needs more than three.
LEAST_EFFECTIVE = 5.0


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> tuple[float, float, float]:
    """Return Spearman's correlation and its 95 % interval, of two series of n >= 5 values in order of time.

    Fisher's interval with the effective number of pairs n (1 - r s) / (1 + r s), where r and s are the lag-1
    autocorrelations of the ranks, not below 0 (Bayley & Hammersley 1946); between `LEAST_EFFECTIVE` and n.  A series
    that never changes has correlation 0 with any other.
    """
    a, b = _ranks(first), _ranks(second)
    size = len(a)
    spread = math.sqrt(float((a**2).sum() * (b**2).sum()))
    value = float((a * b).sum()) / spread if spread > 0 else 0.0
    shared = _lag_one(a) * _lag_one(b)
    effective = min(float(size), max(LEAST_EFFECTIVE, size * (1 - shared) / (1 + shared)))
    centre = math.atanh(max(-0.999, min(0.999, value)))
    half = Z / math.sqrt(effective - 3)
    return value, math.tanh(centre - half), math.tanh(centre + half)


def _ranks(values: Sequence[float]) -> Floats:
    """Return centred ranks; equal values share their mean rank."""
    array = np.asarray(values, np.float64)
    _, inverse, counts = np.unique(array, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Floats = (last - (counts - 1) / 2)[inverse].astype(np.float64)
    return ranks - ranks.mean()


def _lag_one(ranks: Floats) -> float:
    total = float((ranks**2).sum())
    return max(0.0, float((ranks[1:] * ranks[:-1]).sum()) / total) if total > 0 else 0.0
