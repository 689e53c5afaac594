"""Results of statistics: small immutable values that can be written as JSON and never contain NaN.

If a number cannot be computed from the data (no variation, a single problem, no common problems), it is None and
``degenerate`` gives the reason.  Invalid arguments raise `EvaluationError`.

Holm's correction for several tests.

A test without p value (None) stays in the family as p = 1; leaving it out would weaken the correction of the others.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np


class EvaluationError(ValueError):
    """The given episodes or settings cannot be evaluated; the message names the cause and the remedy."""


class Result:
    """Base of all results: refuses NaN and infinities, converts to JSON."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            value = getattr(self, field.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise EvaluationError(
                    f"{type(self).__name__}.{field.name} is {value}: report it in `degenerate` instead"
                )

    def to_json(self) -> dict[str, Any]:
        """Return the result as a JSON object with one key per attribute."""
        return {f.name: to_json(getattr(self, f.name)) for f in dataclasses.fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Rebuild a result of plain fields and tuples from `to_json`; unknown or missing keys raise TypeError."""
        return cls(**{key: tuple(item) if isinstance(item, list) else item for key, item in value.items()})


def to_json(value: Any) -> Any:
    """Return results, mappings, sequences and numpy scalars as plain JSON values; mapping keys become text."""
    if isinstance(value, Result):
        return value.to_json()
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if hasattr(value, "item"):
        return value.item()
    return value


@dataclass(frozen=True, slots=True)
class Estimate(Result):
    """A number with an interval."""

    value: float | None  #: the estimate, or None if there is none
    low: float | None  #: lower limit of the interval, or None
    high: float | None  #: upper limit, or None
    level: float  #: confidence level of the interval, in (0, 1)
    method: str  #: method of the interval
    n: int  #: number of independent units (clusters)
    degenerate: str = ""  #: why there is no number or no interval; else empty


@dataclass(frozen=True, slots=True)
class TestResult(Result):
    """A test of "no difference", or of "a difference as large as the margin"."""

    __test__ = False  # pytest would collect it by its name

    method: str  #: which test, on what
    estimate: float | None  #: the difference tested (first minus second), or None
    low: float | None  #: lower limit of its confidence interval, or None
    high: float | None  #: upper limit, or None
    level: float  #: confidence level of the interval
    statistic: float | None  #: the test statistic, or None
    df: float | None  #: its degrees of freedom, or None
    #: Two-sided p value (for equivalence: the greater of the two one-sided ones, twice it in `evidence.within`), or
    #: None.
    p: float | None
    se: float | None  #: standard error of the estimate, or None
    n: tuple[int, ...]  #: independent units (pairs, clusters) per arm
    degenerate: str = ""  #: why there is no p value; else empty


@dataclass(frozen=True, slots=True)
class Effect(Result):
    """A standardised mean difference."""

    g: float | None  #: Hedges' g (first minus second, small-sample factor applied), or None
    low: float | None  #: lower limit of g's interval, or None
    high: float | None  #: upper limit, or None
    level: float  #: confidence level
    d: float | None  #: Cohen's d, before the factor
    correction: float | None  #: the factor J
    sd: float | None  #: standard deviation used as the unit (pooled)
    df: float | None  #: degrees of freedom of the factor
    method: str  #: method of the interval
    degenerate: str = ""  #: why there is no effect size; else empty


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return Holm's (1979) adjusted p values, in input order; they control the family-wise error rate."""
    filled = np.array([1.0 if p is None else p for p in p_values])
    if filled.size and not ((filled >= 0) & (filled <= 1)).all():
        raise EvaluationError(f"p values must lie in [0, 1], got {list(p_values)}")
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
