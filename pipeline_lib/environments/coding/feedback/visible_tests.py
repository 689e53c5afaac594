"""The source ``tests``: the form of an agent's code, and the results of the visible tests of the team's program.

It sees the verdict on the visible tests, from a process without other tests, and of another agent's code only whether
there is a helper, and how the main function uses it.  What a test reports is untrusted text: it is cut to one short
line and never parsed.
"""

from __future__ import annotations

from pipeline_lib.environment_kit.programs import one_line
from pipeline_lib.environments.coding.feedback.note import Note
from pipeline_lib.environments.coding.program import HELPER, Program, Role
from pipeline_lib.sandbox import Case, Status, Verdict

#: Most failed visible tests that are quoted.
MAX_FAILURES = 1

_SOURCE = "tests"


def notes_for(role: Role, program: Program, visible: Verdict | None) -> list[Note]:
    """Return the notes on the program for the agent in ``role``, a line each.

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
    return [Note(_SOURCE, note) for note in notes]


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
