"""The tool of the coding environment: agents see which visible tests fail before they answer.

An agent calls it with a last line (`CALL`).  The visible tests then run on what all agents have written at that time;
the agent reads what the source of feedback ``tests`` would tell it after the turn (`feedback.notes_on_tests`), with the
same promises, and writes its part again.
"""

from __future__ import annotations

from pipeline_lib.environment_api.tools import ToolResult
from pipeline_lib.environments.coding.feedback import notes_on_tests
from pipeline_lib.environments.coding.program import Program
from pipeline_lib.sandbox import Status, Verdict

#: The last line of a text that calls the tool; a comment, so it changes no program.
CALL = "# test"

#: What agents are told of the tool, below their task.
INSTRUCTION = f"Last line {CALL}: see the visible tests first, then write it again.\n"

_FENCE = "```"


def is_call(text: str) -> bool:
    """Return whether a text calls the tool; a code fence may end below the call."""
    lines = [line.strip() for line in text.splitlines() if line.strip() not in ("", _FENCE)]
    return bool(lines) and lines[-1] == CALL


def result(agent: int, program: Program, visible: Verdict | None) -> ToolResult:
    """Return what an agent is told.

    Args:
        agent: number of the agent.
        program: what all agents have written, joined.
        visible: the verdict on the visible tests, None if they could not be run.
    """
    if visible is not None and visible.status is Status.INFRA_ERROR:
        return ToolResult(error=visible.error or "the sandbox failed")
    notes = [note.text for note in notes_on_tests(program.roles[agent], program, visible)]
    if visible is None:
        notes.append("no test could run")
    return ToolResult("\nWrite it again, improved:\n" + "".join(f"- {note}\n" for note in notes))
