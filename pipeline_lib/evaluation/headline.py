"""The verdict in three lines: against the base, against the single agent, and the caveats, which are only counted.

The details of every caveat are kept beside the lines, for a reader who unfolds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline_lib.evaluation.comparison import EQUIVALENT, IMPROVED, INCONCLUSIVE, UNTESTED, WORSE, Comparison, bounds
from pipeline_lib.evaluation.results import Result
from pipeline_lib.evaluation.sentences import capital, caution, limits, lost, significant_alone

if TYPE_CHECKING:
    from pipeline_lib.evaluation.plan_check import PlanCheck

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
    """What a reader must know besides the verdict.

    Attributes:
        what: kind and number, for example ``2 changes of the plan``.
        details: a sentence for each.
    """

    what: str
    details: tuple[str, ...]


def counted(details: Iterable[str], one: str, several: str) -> list[Caveat]:
    """Return a caveat with its number in front, named ``one`` or ``several``; none if there are no details."""
    told = tuple(f"{capital(text).rstrip('.')}." for text in details if text)
    return [Caveat(f"{len(told)} {one if len(told) == 1 else several}", told)] if told else []


def against_base(c: Comparison) -> str:
    """Return the comparison with the base in one line."""
    alone = significant_alone(c)
    if alone is not None:
        runs = f", in {alone} of {len(c.per_seed)} training runs"
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
    failed = dict.fromkeys(fault for c in found for fault in c.faults)
    return [
        *counted(failed, "failed guard", "failed guards"),
        *counted(gone, "comparison with lost episodes", "comparisons with lost episodes"),
        *counted(left_out, "note on episodes left out", "notes on episodes left out"),
        *counted(doubts, "doubt about the statistics", "doubts about the statistics"),
    ]


def of_plan_and_looks(check: PlanCheck, looks: Mapping[str, Any], names: Mapping[str, str]) -> list[Caveat]:
    """Return the caveats of the plan and of the looks at the test split.

    Args:
        check: whether the plan was followed, and whether it was fixed in advance.
        looks: of `look_correction`.
        names: of the teams in the headline, by the name of their comparison.
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
        return f"{text} (bounds {limits(c.info, *known)})"
    test = c.equivalence if c.verdict == EQUIVALENT else c.difference
    return f"{text} ({100 * test.level:.0f} % interval {limits(c.info, test.low, test.high)})"


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")
