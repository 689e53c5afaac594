"""The audit of a writing reward: the reward of each scripted team, and the share of it that form alone earns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline_lib.audit.claims import form
from pipeline_lib.audit.examiner import ScriptedExaminer, ScriptedPlay, Teams
from pipeline_lib.audit.result import Check, Rung, Status
from pipeline_lib.environments.writing.audit.teams import teams


class WritingExaminer(ScriptedExaminer):
    """Plays scripted writers and checks how much those earn that tell no facts.

    Only the first turn of an episode is used.
    """

    wanted, words = "coverage", "facts told"
    turns = 1

    def teams(self, environment: Any, problem: Any, other: Any) -> Teams:
        """Return texts of known quality."""
        return teams(environment, problem, other)

    def further(self, rungs: Sequence[Rung], played: ScriptedPlay) -> list[Check]:
        """Check pay for form."""
        return [_form(rungs)]


def _form(rungs: Sequence[Rung]) -> Check:
    """Check which share of the reward of the best working writers is paid to writers that tell no facts."""
    working = [rung.reward for rung in rungs if rung.role == "working"]
    degenerate = [rung for rung in rungs if rung.role == "degenerate"]
    if not working or not degenerate:
        return Check("form", Status.WARN, "No text has known facts, so the possible reward is unknown.")
    top, bottom = max(degenerate, key=lambda rung: rung.reward), min(rung.reward for rung in rungs)
    share = (top.reward - bottom) / (max(working) - bottom) if max(working) > bottom else 1.0
    status = form(share)
    return Check(
        "form",
        status,
        f"'{top.name}', which tells nothing, earns {share:.0%} of what telling everything earns.",
        {"share": share, "team": top.name},
        "" if status is Status.PASS else "give the facts of the source more weight than all that form can earn.",
    )
