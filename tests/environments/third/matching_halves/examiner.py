"""Teams whose worth is known."""

from __future__ import annotations

from typing import Any

from pipeline_lib.audit.examiner import ScriptedExaminer, Teams


class HalvesExaminer(ScriptedExaminer):
    """Agree, differ, say nothing, copy the prompt."""

    wanted, words = "match", "matching halves"

    def teams(self, environment: Any, problem: Any, other: Any) -> Teams:
        seen = [environment.observe(environment.start(problem), agent) for agent in range(2)]
        return {
            "always x": ("working", ["x", "x"]),
            "always z": ("working", ["z", "z"]),
            "apart": ("degenerate", ["x", "y"]),
            "empty": ("degenerate", ["", ""]),
            "copied prompt": ("degenerate", seen),
        }
