"""What a tool finds in the agents' parts of a program, without running them.

The tool runs in the sandbox, because a program can crash a parser or keep it busy.  The job's program is the tool, and
the agents' programs are its argument, so they are never executed there.  An agent is told only of its own part.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline_lib.environment_kit.programs import one_line
from pipeline_lib.environments.coding.feedback.note import Note
from pipeline_lib.environments.coding.program import Program
from pipeline_lib.environments.coding.settings import ANALYSERS
from pipeline_lib.sandbox import Job, Status, Verdict

#: Most findings that an agent is told.
MAX_FINDINGS = 3

_MARK = "Finding: "  # the judge writes the class of an exception before its text

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


@dataclass(frozen=True)
class Analysis:
    """A tool as a source of feedback.

    Attributes:
        source: the source's name in `environment.feedback`.
        code: defines ``analyse(parts, most)``, which takes the agents' parts and the prelude, as text, and returns for
            each agent at most ``most`` findings, or None if the tool fails with its part.
    """

    source: str
    code: str

    def job(self, problem: str, program: Program, prelude: str) -> Job:
        """Return the job of analysing a program; its verdict is for `notes_for` only."""
        tests = _TESTS.format(parts=[*program.parts, prelude], most=MAX_FINDINGS)
        for part in range(len(program.parts)):
            for number in range(MAX_FINDINGS):
                tests += f"    assert told(found[{part}], {number})\n"
        return Job(problem, self.code, tests, "analyse", shown=True)

    def failure(self, verdict: Verdict) -> str:
        """Return why the tool could not run, whatever the program; empty if it could."""
        if verdict.status is not Status.LOAD_ERROR:
            return ""
        tool = ANALYSERS[self.source]
        return f"environment.feedback: {self.source} needs {tool} where programs run ({verdict.error})"

    def notes_for(self, agent: int, program: Program, verdict: Verdict) -> list[Note]:
        """Return the findings in the part of agent number ``agent``, a line each."""
        role = program.roles[agent]
        if role.error is not None:  # only what could be salvaged of its text is in the program
            return [Note(self.source, one_line(f"your code does not parse: {role.error}"))]
        cases = verdict.cases[agent * MAX_FINDINGS : (agent + 1) * MAX_FINDINGS]
        found = [case.message.removeprefix(_MARK) for case in cases if case.message.startswith(_MARK)]
        if not found and any(case.result != "ok" for case in cases):
            return [Note(self.source, f"{ANALYSERS[self.source]} did not finish")]
        return [Note(self.source, one_line(text)) for text in found]
