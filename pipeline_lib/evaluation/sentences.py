"""Verdicts as text: one sentence that can be quoted, with the effect in natural units and its uncertainty.

The verdict in three lines: against the base, against the single agent, and the caveats, which are only counted.

The details of every caveat are kept beside the lines, for a reader who unfolds them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline_lib.environment_api.metrics import Metric
from pipeline_lib.evaluation.comparison import (
    EQUIVALENT,
    IMPROVED,
    INCONCLUSIVE,
    UNTESTED,
    WORSE,
    Basis,
    Comparison,
    basis,
    bounds,
)
from pipeline_lib.evaluation.evidence import families_against, missing, note
from pipeline_lib.evaluation.results import Result, TestResult

if TYPE_CHECKING:
    from pipeline_lib.evaluation.plan import PlanCheck


def p_text(p: float | None) -> str:
    """Return a p value as text that never claims more than can be known, for example ``p < 1e-6``."""
    if p is None:
        return "no p value"
    if p < 1e-6:
        return "p < 1e-6"
    return f"p = {p:.2g}" if p < 0.1 else f"p = {p:.2f}"


def sentence(c: Comparison) -> str:
    """Return the summary of a comparison with its verdict; failed guards are always included."""
    doubt = "" if c.degenerate else caution(c)
    return " ".join(filter(None, (_finding(c), doubt, _no_range(c), lost(c)))) + guards(c)


def no_range(info: Metric) -> str:
    """Return why a metric without a declared range has no verdict, and what to do; empty if it has a range."""
    if math.isfinite(info.reach):
        return ""
    return (
        f"No range of {info.label} is declared, and without one a rare kind of family could undo any difference, so "
        "there is no verdict; declare it: `low` and `high` of a metric, `reward_bounds` of a reward, --metric-range "
        "(metric_range=) of outcomes."
    )


def _no_range(c: Comparison) -> str:
    return "" if c.one_observation else no_range(c.info)


def caution(c: Comparison) -> str:
    """Return a caution if few families, or families that are not in this sample, decide the verdict; or empty."""
    found = None if c.faults else basis(c)
    rare = "" if found is None else rare_families(found, c.verdict)
    return " ".join(filter(None, (note(c.difference, c.evidence), rare)))


def lost(c: Comparison) -> str:
    """Return a sentence with the lost episodes and what they could change; empty if nothing was lost."""
    if c.losses is None:
        return ""
    who = " and ".join(
        f"{count} of {played} episodes of {name}"
        for count, played, name in zip(c.losses.lost, c.losses.played, c.names, strict=True)
        if count
    )
    reach = interval(c.losses.low, c.losses.high, c.info.difference)
    return (
        f"Lost: {who}. Over all episodes, whatever the lost ones would have shown"
        f"{' within the values that were seen' if c.losses.assumed else ''}, the difference is {reach}; interval, p "
        "value and verdict allow for the worst case."
    )


def guards(c: Comparison) -> str:
    """Return a sentence with the guards that the first team fails; empty if it passes all."""
    return f" But {c.names[0]} fails a guard: {'; '.join(c.faults)}." if c.faults else ""


def outside_family(c: Comparison, reason: str) -> str:
    """Return the summary of a comparison outside the family: the means, and why it is not tested."""
    return f"{c.verdict}: {_facts(c, c.info)}. Outside the family of comparisons: {reason}.{guards(c)}"


def _facts(c: Comparison, info: Metric) -> str:
    a, b = c.names
    first, second = (estimate.value or 0.0 for estimate in c.means)
    return (
        f"on {c.problems} {c.where} problem{'s' if c.problems != 1 else ''}, {info.label}: {info.text(first)} for {a}, "
        f"{info.text(second)} for {b}; {info.difference(c.difference.estimate or 0.0)}"
    )


def _finding(c: Comparison) -> str:
    info = c.info
    facts = _facts(c, info)
    if c.difference.p is None:
        return f"{c.verdict}: {facts}. {capital(c.degenerate)}.{_bounded(c, info)}"
    corrected = f" after Holm's correction for {c.family_size} comparisons" if c.family_size > 1 else ""
    effect = "" if c.effect.g is None else f", Hedges' g {c.effect.g:.2f}"
    evidence = f"({_interval_of(c.difference, info)}, {p_text(c.p_adjusted)}{corrected}{effect})"
    if c.degenerate:
        return f"{c.verdict}: {facts}. {capital(c.degenerate)}."
    if c.verdict in (IMPROVED, WORSE):
        alone = significant_alone(c)
        runs = f", significant in {alone} of {len(c.per_seed)} training runs alone, corrected for their number too"
        return f"{c.verdict}: {facts} {evidence}{'' if alone is None else runs}."
    if c.verdict == EQUIVALENT:
        return (
            f"{c.verdict}: {facts}, and any difference is smaller than the {info.difference(c.margin).lstrip('+')} "
            f"that would matter ({_interval_of(c.equivalence, info)}, {p_text(c.equivalence_p_adjusted)} for a greater "
            f"one{corrected})."
        )
    failed = c.faults and c.p_adjusted is not None and c.p_adjusted <= c.alpha
    if failed or no_range(info):
        return f"{c.verdict}: {facts} {evidence}."  # the reason follows
    return f"{c.verdict}: {facts} {evidence}. {power(c, info)}"


def power(c: Comparison, info: Metric) -> str:
    """Return what the design could have found; empty if bounds decided, and it is not known."""
    if c.detectable is None:
        return no_range(info) or ("This design cannot tell." if c.verdict == INCONCLUSIVE else "")
    needed = "more problems than can be had" if c.problems_for_margin is None else f"{c.problems_for_margin} problems"
    return (
        f"These {c.problems} problems find a difference of {info.difference(c.detectable).lstrip('+')} with "
        f"{100 * c.power:.0f} % power{' after that correction' if c.family_size > 1 else ''}; finding "
        f"{info.difference(c.margin).lstrip('+')} needs {needed}."
    )


def significant_alone(c: Comparison) -> int | None:
    """Return in how many single training runs the verdict IMPROVED or WORSE holds, corrected for their number too.

    None for another verdict, or if one team has a single run.
    """
    if len(c.per_seed) < 2 or 1 in c.runs or c.verdict not in (IMPROVED, WORSE):
        return None
    sign = 1 if c.verdict == IMPROVED else -1
    return sum(
        run.p_adjusted is not None and run.p_adjusted <= c.alpha and sign * (run.difference.estimate or 0.0) > 0
        for run in c.per_seed
    )


def _bounded(c: Comparison, info: Metric) -> str:
    limits = bounds(c)
    if limits is None or c.one_observation:
        return ""
    return (
        f" Without assuming a distribution, the difference over such problems lies between "
        f"{info.difference(limits[0])} and {info.difference(limits[1])}."
    )


def rare_families(found: Basis, verdict: str) -> str:
    """Return what families too rare to be in this sample would do to a significant result that is no verdict.

    Else, or if the metric has no declared range (`no_range`), the text is empty.
    """
    significant, equal = (p is not None and p <= found.alpha for p in (found.p, found.same))
    if not (significant or equal) or verdict != INCONCLUSIVE or math.isinf(found.most):
        return ""
    kind = f"{1 / missing(found.families, found.alpha):.0f}, or rarer, may be missing from these {found.families}"
    whole = f" in each of {found.terms} differences" if found.terms > 1 else ""
    limits = interval(*found.unseen(), found.info.difference)
    return (
        f"A kind of family that is one in {kind}; if it differs by the whole range{whole}, the difference may be "
        f"{limits}.{_enough(found, significant, equal)}"
    )


def _enough(found: Basis, significant: bool, equal: bool) -> str:
    """Return how many families would let a result stand that is ``significant``, or ``equal`` within the margin.

    Whichever of the two needs fewer; with lost episodes it is unknown.
    """
    if len(found.estimates) > 1:
        return ""
    size, shares = abs(found.estimates[0]), []
    if significant:
        shares.append(size / (found.most + size))
    if equal:
        shares.append((found.margin - size) / (found.most - size))
    return f" {families_against(max(shares), found.alpha)} families would exclude that."


def interval(low: float | None, high: float | None, show: Callable[[float], str], none: str = "unknown") -> str:
    """Return an interval in words, its unit once; ``show`` gives a number its unit, ``none`` stands for no interval."""
    if low is None or high is None:
        return none
    return f"{show(low).removesuffix(' %').removesuffix(' points')} to {show(high)}"


def _interval_of(test: TestResult, info: Metric) -> str:
    return f"{100 * test.level:.0f} % interval {interval(test.low, test.high, info.difference)}"


def capital(text: str) -> str:
    """Return the text with a capital first letter, unless it begins with the name of a file or a setting."""
    return text if re.match(r"[\w-]+[./_]\w", text) else text[:1].upper() + text[1:]


#: What a comparison with the single agent says about working together, by its verdict.
WORKING_TOGETHER = {
    IMPROVED: "working together pays",
    WORSE: "working together costs more than it gains",
    EQUIVALENT: "working together gains nothing that matters",
    INCONCLUSIVE: "it is open whether working together pays",
    UNTESTED: "the plan leaves it out of the tests",
}
NO_SINGLE_AGENT = "Against a single agent: none was trained, so it is open whether working together pays."


@dataclass(frozen=True, slots=True)
class Caveat(Result):
    """What a reader must know besides the verdict."""

    what: str  #: kind and number, for example ``2 changes of the plan``
    details: tuple[str, ...]  #: a sentence for each


def counted(details: Iterable[str], one: str, several: str) -> list[Caveat]:
    """Return a caveat with its number in front, named ``one`` or ``several``; none if there are no details."""
    told = tuple(f"{capital(text).rstrip('.')}." for text in details if text)
    return [Caveat(f"{len(told)} {one if len(told) == 1 else several}", told)] if told else []


def against_base(c: Comparison) -> str:
    """Return the comparison with the base in one line."""
    alone = significant_alone(c)
    if alone is not None:
        runs = f", {'in' if alone == len(c.per_seed) else 'alone in'} {alone} of {len(c.per_seed)} training runs"
    else:
        runs = ", from one training run" if c.runs[0] == 1 else ""
    guard = "; a guard fails" if c.faults else ""
    return f"Against {c.names[1]}: {c.verdict}. {capital(c.info.label)}: {_numbers(c)}{runs}{guard}."


def against_single_agent(c: Comparison | None) -> str:
    """Return in one line whether working together pays: the comparison with the trained single agent, if there is one.

    It says so if the single agent has fewer training runs than the team.
    """
    if c is None:
        return NO_SINGLE_AGENT
    team, single = c.runs
    runs = f" ({team} training runs each)" if team == single > 1 else ""
    if single < team:
        enough = ": one run is not enough" if single == 1 else ""
        runs = f"; it was trained {_times(single)}, the team {_times(team)}{enough}"
    elif single == team == 1:
        runs = "; each was trained once: one run is not enough"
    return f"Against {c.names[1]}: {c.verdict}, {WORKING_TOGETHER[c.verdict]}. {capital(_numbers(c))}{runs}."


def in_line(caveats: Sequence[Mapping[str, Any]]) -> str:
    """Return the line that counts the caveats (each as JSON)."""
    return f"Caveats: {', '.join(str(found['what']) for found in caveats) or 'none'}."


def of_comparisons(comparisons: Iterable[Comparison | None]) -> list[Caveat]:
    """Return the caveats of the comparisons in the headline: left out episodes, doubtful statistics, failed guards."""
    found = [c for c in comparisons if c is not None]
    told = [(f"against {c.names[1]}: ", c) for c in found]
    left_out = dict.fromkeys(note for c in found for note in c.notes)
    doubts = (f"{which}{text}" for which, c in told if (text := c.degenerate or caution(c)))
    gone = (f"{which}{text}" for which, c in told if (text := lost(c)))
    unbounded = dict.fromkeys(_no_range(c) for c in found)
    failed = dict.fromkeys(fault for c in found for fault in c.faults)
    return [
        *counted(failed, "failed guard", "failed guards"),
        *counted(gone, "comparison with lost episodes", "comparisons with lost episodes"),
        *counted(left_out, "note on episodes left out", "notes on episodes left out"),
        *(Caveat("no declared range", (text,)) for text in unbounded if text),
        *counted(doubts, "doubt about the statistics", "doubts about the statistics"),
    ]


def of_plan_and_looks(check: PlanCheck, looks: Mapping[str, Any], names: Mapping[str, str]) -> list[Caveat]:
    """Return the caveats of the plan ``check`` and of the ``looks`` (`correct_for_looks`) at the test split.

    ``names`` are those of the teams in the headline, by the name of their comparison.
    """
    found = []
    if looks["not_counted"]:
        found.append(Caveat("looks at the test split not counted", (f"{looks['not_counted']}.",)))
    elif looks["count"] > 1:
        lost = " and ".join(f"against {names[name]}" for name in looks["unsupported"] if name in names)
        lost = f" (corrected for all looks, the verdict {lost} is not significant)" if lost else ""
        found.append(
            Caveat(f"look {looks['number']} of {looks['count']} at the test split{lost}", (looks["sentence"],))
        )
    return [
        *found,
        *counted(check.deviations, "deviation from the plan", "deviations from the plan"),
        *counted(check.changed, "change of the plan", "changes of the plan"),
    ]


def _numbers(c: Comparison) -> str:
    """Return both means, the difference, and its interval, which belongs to the verdict."""
    first, second = (c.info.text(estimate.value or 0.0) for estimate in c.means)
    text = f"{first} against {second}, {c.info.difference(c.difference.estimate or 0.0)}"
    known = bounds(c)
    if c.one_observation or c.verdict == UNTESTED or (c.difference.p is None and known is None):
        return f"{text} (no interval)"
    if known is not None:
        return f"{text} (bounds {interval(*known, c.info.difference)})"
    test = c.equivalence if c.verdict == EQUIVALENT else c.difference
    return f"{text} ({_interval_of(test, c.info)})"


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")
