"""The audit of a reward for programs in parts: scripted teams, and pay for working alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline_lib.audit.examiner import ScriptedExaminer, ScriptedPlay, Teams
from pipeline_lib.audit.result import Check, Rung, Status
from pipeline_lib.environments.modules.audit.teams import teams

#: Teams in which one agent does the work of all.
_ALONE = ("one_writes_all", "one_writes_all_alone")


class ModulesExaminer(ScriptedExaminer):
    """Plays scripted teams; problems without a known solution are used for the degenerate teams only."""

    wanted, words = "system_passed", "system tests passed"
    turns = 1

    def teams(self, environment: Any, problem: Any, other: Any) -> Teams:
        """Return parts of known quality."""
        return teams(environment, problem, other)

    def further(self, rungs: Sequence[Rung], played: ScriptedPlay) -> list[Check]:
        """Check pay for working alone, and the known solutions."""
        return [_alone(rungs), _reference_passes(played)]


def _alone(rungs: Sequence[Rung]) -> Check:
    """Check that a team in which one agent writes everything earns less than one that shares the work."""
    by_name = {rung.name: rung for rung in rungs}
    shared, alone = by_name.get("reference"), [by_name[name] for name in _ALONE if name in by_name]
    if shared is None or not alone:
        return Check("alone", Status.PASS, "There is no team with a known solution, so working alone cannot be tested.")
    best = max(alone, key=lambda rung: rung.reward)
    numbers = {"shared": shared.reward, best.name: best.reward}
    said = f"A team in which one agent writes everything earns {best.reward:.3f}, one that shares {shared.reward:.3f}"
    if best.reward >= shared.reward:
        return Check("alone", Status.FAIL, f"{said}.", numbers, "pay for the unit tests of every part.")
    return Check("alone", Status.PASS, f"{said}.", numbers)


def _reference_passes(played: ScriptedPlay) -> Check:
    known = [
        (problem, outcome)
        for name, problem, outcome in zip(played.names, played.problems, played.outcomes, strict=True)
        if name.startswith("reference") and outcome.reward is not None
    ]
    if not known:
        return Check("reference", Status.WARN, "No problem has a known solution, so no working team could be played.")
    broken = [
        problem.id for problem, found in known if min(found.metrics[m] for m in ("system_passed", "units_passed")) < 1
    ]
    if broken:
        return Check(
            "reference",
            Status.FAIL,
            f"{len(broken)} of {len(known)} known solutions fail tests, first that of '{broken[0]}': the full reward "
            "cannot be reached there.",
            {"broken": broken},
        )
    return Check("reference", Status.PASS, f"All {len(known)} known solutions pass every test.")
