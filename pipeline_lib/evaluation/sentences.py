"""Verdicts in words: one sentence that a reader can quote, with the effect in natural units and its uncertainty."""

from __future__ import annotations

from pipeline_lib.evaluation.comparison import (
    EQUIVALENT,
    IMPROVED,
    INCONCLUSIVE,
    WORSE,
    Comparison,
    bounds_without_variation,
)
from pipeline_lib.evaluation.metrics import MetricInfo, describe


def p_text(p: float | None) -> str:
    """Return a p value as text that never claims more than can be known, for example ``p < 1e-6``."""
    if p is None:
        return "no p value"
    if p < 1e-6:
        return "p < 1e-6"
    return f"p = {p:.2g}" if p < 0.1 else f"p = {p:.2f}"


def sentence(c: Comparison) -> str:
    """Return what may be quoted of a decided comparison."""
    info = describe(c.metric)
    a, b = c.names
    first, second = (estimate.value or 0.0 for estimate in c.means)
    estimate = c.difference.estimate or 0.0
    facts = (
        f"on {c.problems} held-out problem{'s' if c.problems != 1 else ''}, {info.label}: {info.text(first)} for {a}, "
        f"{info.text(second)} for {b}; {info.difference(estimate)}"
    )
    if c.faults and c.verdict == INCONCLUSIVE:
        return f"{c.verdict}: {facts}, but {a} fails a guard: {'; '.join(c.faults)}."
    if c.difference.p is None:
        return f"{c.verdict}: {facts}. {_capital(c.degenerate)}.{_bounded(c, info)}"
    corrected = f" after Holm's correction for {c.family_size} comparisons" if c.family_size > 1 else ""
    level = f"{100 * c.difference.level:.0f} % interval"
    evidence = (
        f"({level} {_range(info, c.difference.low, c.difference.high)}, {p_text(c.p_adjusted)}{corrected}{_g(c)})"
    )
    if c.degenerate:
        return f"{c.verdict}: {facts}. {_capital(c.degenerate)}."
    if c.verdict in (IMPROVED, WORSE):
        return f"{c.verdict}: {facts} {evidence}{_runs(c)}."
    if c.verdict == EQUIVALENT:
        return (
            f"{c.verdict}: {facts}, and any difference is smaller than the {info.difference(c.margin).lstrip('+')} "
            f"that would matter ({100 * c.equivalence.level:.0f} % interval "
            f"{_range(info, c.equivalence.low, c.equivalence.high)}, {p_text(c.equivalence_p_adjusted)} for a greater "
            f"one{corrected})."
        )
    return f"{c.verdict}: {facts} {evidence}. {_what_it_takes(c, info)}"


def _what_it_takes(c: Comparison, info: MetricInfo) -> str:
    if c.detectable is None:
        return "This design cannot tell."
    return (
        f"These {c.problems} problems find a difference of {info.difference(c.detectable).lstrip('+')} with "
        f"{100 * c.power:.0f} % power; finding {info.difference(c.margin).lstrip('+')} needs "
        f"{c.problems_for_margin} problems."
    )


def _runs(c: Comparison) -> str:
    if len(c.per_seed) < 2:
        return ""
    sign = 1 if c.verdict == IMPROVED else -1
    alone = sum(
        seed.difference.p is not None and seed.difference.p <= c.alpha and sign * (seed.difference.estimate or 0.0) > 0
        for seed in c.per_seed
    )
    return f", significant in {alone} of {len(c.per_seed)} training runs alone"


def _bounded(c: Comparison, info: MetricInfo) -> str:
    limits = bounds_without_variation(c)
    if limits is None or c.one_observation:
        return ""
    return (
        f" Without assuming a distribution, the difference over such problems lies between "
        f"{info.difference(limits[0])} and {info.difference(limits[1])}."
    )


def _g(c: Comparison) -> str:
    return "" if c.effect.g is None else f", Hedges' g {c.effect.g:.2f}"


def _range(info: MetricInfo, low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return "unknown"
    return f"{info.difference(low).removesuffix(' points')} to {info.difference(high)}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
