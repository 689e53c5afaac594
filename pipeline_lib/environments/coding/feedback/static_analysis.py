"""The source ``static_analysis``: what pyflakes finds in an agent's part of the joined program, without running it.

It sees the joined program and the problem's prelude, never a test.  An agent is told only of its own part.  A finding
that names something that is not in this part (a module that the other agent imports everything from) is left out.

pyflakes runs in the sandbox, because a program can crash a parser or keep it busy.  The job's program is pyflakes, and
the agents' programs are its argument, so they are never executed there.
"""

from __future__ import annotations

from pipeline_lib.environments.coding.feedback.note import Note, one_line
from pipeline_lib.environments.coding.program import Program
from pipeline_lib.sandbox import Job, Status, Verdict

#: Most findings that an agent is told.
MAX_FINDINGS = 3

_SOURCE = "static_analysis"
_MARK = "Finding: "  # the judge writes the class of an exception before its text

#: Parts keep their own numbers of lines, so that a finding's line says whose it is.  The prelude is the last part.
_ANALYSIS = """
import ast
import re
from pyflakes.checker import Checker

FAR = 10**6

def analyse(parts, most):
    body = []
    for number, source in enumerate(parts[-1:] + parts[:-1]):
        tree = ast.parse(source)
        ast.increment_lineno(tree, number * FAR)
        body += tree.body
    future = [s for s in body if isinstance(s, ast.ImportFrom) and s.module == "__future__"]
    tree = ast.Module([*future, *(s for s in body if s not in future)], [])
    found = [[] for _ in parts[:-1]]
    for message in sorted(Checker(tree).messages, key=lambda one: (one.lineno, one.col)):
        number, line = divmod(message.lineno, FAR)
        names = [name for value in message.message_args for name in re.findall(r"\\w+", str(value))
                 if not isinstance(value, int)]
        if number == 0 or not set(names) <= set(re.findall(r"\\w+", parts[number - 1])):
            continue
        text = re.sub(r" from line \\d+", "", message.message % message.message_args)
        source = parts[number - 1].splitlines()[line - 1].strip()
        if len(found[number - 1]) < most:
            found[number - 1].append(f"{text}: {source}"[:400])
    return found
"""

#: Each finding is a case that fails with its text; the number of cases does not depend on the programs.
_TESTS = """
class Finding(Exception):
    pass

def told(own, number):
    if number < len(own):
        raise Finding(own[number])
    return True

def check(candidate):
    found = candidate({parts!r}, {most})
"""


def job(problem: str, program: Program, prelude: str) -> Job:
    """Return the job of analysing a program; its verdict is for `notes_for` only."""
    tests = _TESTS.format(parts=[*program.parts, prelude], most=MAX_FINDINGS)
    for part in range(len(program.parts)):
        for number in range(MAX_FINDINGS):
            tests += f"    assert told(found[{part}], {number})\n"
    return Job(problem, _ANALYSIS, tests, "analyse")


def failure(verdict: Verdict) -> str:
    """Return why the analysis could not run, whatever the program; empty if it could."""
    if verdict.status is not Status.LOAD_ERROR:
        return ""
    return f"environment.feedback: static_analysis needs pyflakes where programs run ({verdict.error})"


def notes_for(agent: int, program: Program, verdict: Verdict) -> list[Note]:
    """Return the findings in the part of agent number ``agent``, a line each."""
    role = program.roles[agent]
    if role.error is not None:  # only what could be salvaged of its text is in the program
        return [Note(_SOURCE, one_line(f"your code does not parse: {role.error}"))]
    cases = verdict.cases[agent * MAX_FINDINGS : (agent + 1) * MAX_FINDINGS]
    found = [case.message.removeprefix(_MARK) for case in cases if case.message.startswith(_MARK)]
    if not found and any(case.result != "ok" for case in cases):
        return [Note(_SOURCE, "static analysis did not finish")]
    return [Note(_SOURCE, one_line(text)) for text in found]
