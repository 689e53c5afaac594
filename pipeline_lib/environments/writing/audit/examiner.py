"""The audit of a writing reward: scripted writers."""

from __future__ import annotations

from typing import Any

from pipeline_lib.audit.examiner import ScriptedExaminer, Teams
from pipeline_lib.environments.writing.audit.teams import teams


class WritingExaminer(ScriptedExaminer):
    """Plays scripted writers.

    Only the first turn of an episode is used.
    """

    wanted, words = "coverage", "facts told"
    turns = 1

    def teams(self, environment: Any, problem: Any, other: Any) -> Teams:
        """Return texts of known quality."""
        return teams(environment, problem, other)
