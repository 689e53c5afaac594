"""p values corrected for several looks at a test split, and a sentence about them.

The correction is Bonferroni's over all looks made so far: p times their number.  It is valid for any dependence between
looks, needs no number of looks that is fixed in advance, and does not change a single look.  It assumes that no further
looks follow: if one corrects the k-th look for k and stops at the first significant result, the error rate can reach
1 + 1/2 + ... + 1/k times alpha.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pipeline_lib.evaluation.comparison import EQUIVALENT, INCONCLUSIVE
from pipeline_lib.evaluation.looks import Look, history, looks_at
from pipeline_lib.evaluation.sentences import p_text


def correct_for_looks(
    known: Iterable[Look], this: Look, result: Mapping[str, Any], alpha: float, since: str = ""
) -> dict[str, Any]:
    """Return the report on looks for the ``result`` of `summarise_test`, as a JSON object.

    ``known`` are all recorded looks, ``this`` one included.  ``since`` says, as a sentence, since when looks are
    counted, and what other repositories are known to have.

    Returns:
        ``number`` of this look and ``count`` of all, their ``history``, ``p`` (by comparison: the plain p value of its
            verdict, after the correction for the family, and the same corrected for looks, or None), ``unsupported``
            (comparisons whose verdict is significant before and not after that), ``sentence`` (empty if this look is
            the only one), ``since`` and ``not_counted`` (empty).
    """
    known, comparisons = list(known), result["comparisons"]
    plain = {name: _p(comparison) for name, comparison in comparisons.items()}
    order = looks_at(this.problems, known)
    number = 1 + [look.identity for look in order].index(this.identity)
    return {
        "number": number,
        "count": len(order),
        "history": history(this.problems, known),
        "p": {n: {"plain": p, "for_looks": None if p is None else min(1.0, p * len(order))} for n, p in plain.items()},
        "unsupported": [
            name
            for name, p in plain.items()
            if p is not None and p <= alpha < p * len(order) and comparisons[name]["verdict"] != INCONCLUSIVE
        ],
        "sentence": _sentence(number, order, this, comparisons, alpha) if len(order) > 1 else "",
        "since": since,
        "not_counted": "",
    }


def not_counted(reason: str) -> dict[str, Any]:
    """Return the report for a result whose looks cannot be recorded; see `correct_for_looks`."""
    empty: dict[str, Any] = {
        "number": None,
        "count": None,
        "history": [],
        "p": {},
        "unsupported": [],
        "sentence": "",
        "since": "",
    }
    return {**empty, "not_counted": f"Looks at this test split are not counted: {reason}"}


def _p(comparison: Mapping[str, Any]) -> float | None:
    """Return the p value on which a comparison's verdict is based, corrected for the family of comparisons."""
    equivalent = comparison["verdict"] == EQUIVALENT
    p: float | None = comparison["equivalence_p_adjusted" if equivalent else "p_adjusted"]
    return p


def _sentence(number: int, order: Sequence[Look], this: Look, comparisons: Mapping[str, Any], alpha: float) -> str:
    count, problems = len(order), set(this.problems)
    primary = next(iter(comparisons.values()))
    p = _p(primary)
    head = f"This is look {number} of {count} at problems of this test split"
    shared = [len(problems & set(look.problems)) for look in order if look.identity != this.identity]
    if min(shared) < len(problems):  # as of another seed of generated problems
        least = f"{min(shared)} to " if min(shared) < max(shared) else ""
        head += f" ({least}{max(shared)} of its {len(problems)} problems in each of the others)"
    if p is None:
        return f"{head}; there is no p value to correct for them."
    corrected = min(1.0, p * count)
    what = " for a greater difference" if primary["verdict"] == EQUIVALENT else ""
    text = f"{head}; corrected for {count} looks, {p_text(corrected)}{what}"
    if p <= alpha < corrected and primary["verdict"] != INCONCLUSIVE:
        text += f", above alpha = {alpha:g}: all looks together do not support the verdict"
    return f"{text}."
