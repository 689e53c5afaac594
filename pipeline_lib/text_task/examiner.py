"""The audit of a text task: its scripted teams, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipeline_lib.audit.examiner import ScriptedExaminer, Teams


class TextExaminer(ScriptedExaminer):
    """Checks whether the reward ranks a task's scripted teams in the order of its primary metric.

    Args:
        wanted: the primary metric.
        words: that metric in words.
        teams: returns the scripted teams on a text.
    """

    def __init__(self, wanted: str, words: str, teams: Callable[[str], Teams]) -> None:
        self.wanted, self.words = wanted, words  # type: ignore[misc]
        self._teams = teams

    def teams(self, environment: Any, problem: Any, other: Any) -> Teams:
        """Return the task's teams on a problem."""
        return self._teams(problem.text)
