"""Feedback to an agent after a turn: its own code, and the results of the visible tests of the team's program.

Promises: nothing here comes from hidden tests, or from a process that has seen them; nothing comes from another agent's
text, except what its code made the visible tests report.  Such text is untrusted: it is cut to one short line and never
parsed.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline_lib.environments.coding.program import HELPER, Program, Role
from pipeline_lib.sandbox import Case, Status, Verdict

#: Longest text quoted from a test or an error, in characters; short, because small models have short contexts.
MAX_QUOTE = 100
#: Most failed visible tests that are quoted.
MAX_FAILURES = 1
#: Most of its own previous text that an agent is shown, in characters.
MAX_OWN_TEXT = 4000

_INVITATION = "Write it again, improved:\n"


def next_observation(first: str, action: str, notes: Sequence[str]) -> str:
    """Return an agent's observation in a later turn.

    Args:
        first: its observation in the first turn.
        action: its last text.
        notes: feedback on this text, a line each; none with plain feedback.
    """
    lines = [first.rstrip("\n"), "", "Your code:", action.strip()[:MAX_OWN_TEXT], ""]
    return "\n".join([*lines, *(f"- {note}" for note in notes), _INVITATION])


def notes_for(role: Role, program: Program, visible: Verdict | None) -> tuple[str, ...]:
    """Return the feedback on the program for the agent in ``role``, a line each.

    Args:
        role: the agent's role.
        program: the joint program.
        visible: the sandbox's verdict on the visible tests, from a process without other tests; None if there are none.
    """
    notes = []
    if role.error is not None:
        notes.append(one_line(f"your code does not parse: {role.error}"))
    elif not role.defined:
        notes.append(f"{role.function} is not defined")
    elif not role.returns:
        notes.append(f"{role.function} returns nothing")
    notes += program.conflicts
    if role is program.main and role.defined and len(program.roles) > 1:
        notes += _about_helper(program)
    if visible is not None:
        notes.append(f"tests passed: {visible.passed} of {visible.total}")
        # Code that is missing or does not parse explains every failure.
        if program.parses and all(other.defined for other in program.roles):
            notes += _about_failures(visible)
    return tuple(notes)


def one_line(text: str) -> str:
    """Return untrusted text as one line of printable characters, cut to `MAX_QUOTE`."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text[: 4 * MAX_QUOTE]).split())
    return line if len(line) <= MAX_QUOTE else line[: MAX_QUOTE - 3] + "..."


def _about_helper(program: Program) -> list[str]:
    if not program.roles[0].defined:
        return [f"there is no {HELPER} yet"]
    if not program.calls_helper:
        return [f"{HELPER} is not called"]
    if program.ignores_helper:
        return [f"what {HELPER} returns is thrown away"]
    if program.thin_wrapper:
        return [f"nothing is added to what {HELPER} returns"]
    return []


def _about_failures(visible: Verdict) -> list[str]:
    if visible.status not in (Status.PASSED, Status.FAILED):
        return [one_line(f"{visible.status.value.replace('_', ' ')}: {visible.error}")]
    return [_about_case(case) for case in visible.cases if case.result != "ok"][:MAX_FAILURES]


def _about_case(case: Case) -> str:
    return f"{one_line(case.source)}: {one_line(case.message or case.result)}"
