"""What tools find in the agents' parts of a program, without running them: pyflakes and mypy.

A tool runs in the sandbox, because a program can crash a parser or keep it busy.  The job's program is the tool, and
the agents' programs are its argument, so they are never executed there.  An agent is told only of its own part.

``static_analysis`` (pyflakes) sees the joined program and the problem's prelude, never a test.  A finding that names
something that is not in the agent's own part (a module that the other agent imports everything from) is left out.

``types`` (mypy) sees the problem's prelude and one agent's part at a time.  Names of the other agent's part have any
type, so a message cannot quote that part, not even in a type.  Errors about undefined names and modules are left out
for the same reason: in the joined program they may be defined.  What is imported from packages has any type, too,
because checking a package's own types takes longer than a program may run.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline_lib.environment_kit.programs import one_line
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
        """Return the job of analysing a program; its verdict is for `findings` only."""
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

    def findings(self, agent: int, program: Program, verdict: Verdict) -> list[str]:
        """Return the findings in the part of agent number ``agent``, a line each."""
        role = program.roles[agent]
        if role.error is not None:  # only what could be salvaged of its text is in the program
            return [one_line(f"your code does not parse: {role.error}")]
        cases = verdict.cases[agent * MAX_FINDINGS : (agent + 1) * MAX_FINDINGS]
        texts = [case.message.removeprefix(_MARK) for case in cases if case.message.startswith(_MARK)]
        if not texts and any(case.result != "ok" for case in cases):
            return [f"{ANALYSERS[self.source]} did not finish"]
        return [one_line(text) for text in texts]


#: Parts keep their own numbers of lines, so that a finding's line says whose it is.  The prelude is the last part.  If
#: pyflakes fails with them together, it reads each alone, and says nothing of names that the others may define.
_PYFLAKES = """
import ast
import re
from pyflakes.checker import Checker
from pyflakes.messages import UndefinedName

FAR = 10**6

def analyse(parts, most):
    try:
        return together(parts, most)
    except Exception:
        return [alone(part, parts[-1], most) for part in parts[:-1]]

def alone(part, prelude, most):
    try:
        (found,) = together([part, prelude], most, (UndefinedName,))
        return found
    except Exception:
        return None

def together(parts, most, unsaid=()):
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
        if number == 0 or isinstance(message, unsaid) or not set(names) <= set(re.findall(r"\\w+", parts[number - 1])):
            continue
        text = re.sub(r" from line \\d+", "", message.message % message.message_args)
        source = parts[number - 1].splitlines()[line - 1].strip()
        if len(found[number - 1]) < most:
            found[number - 1].append(f"{text}: {source}"[:400])
    return found
"""

PYFLAKES = Analysis("static_analysis", _PYFLAKES)


#: All parts are checked in one build, because most of its time goes into the types of the standard library.  If one of
#: them ends it, each has a build of its own; None are the findings of a part with which mypy itself fails.
_MYPY = r"""
import hashlib
import os
import re
from mypy import build
from mypy.errors import CompileError
from mypy.modulefinder import BuildSource
from mypy.options import Options

def analyse(parts, most):
    prelude, own = parts[-1], parts[:-1]
    options = Options()
    options.incremental = False
    options.python_executable = None
    options.cache_dir = os.devnull
    options.check_untyped_defs = True
    options.ignore_missing_imports = True
    options.disable_error_code = ["name-defined", "used-before-def"]
    options.hide_error_codes = True
    options.show_error_context = False
    options.process_error_codes(error_callback=print)
    # One part must not import another, so no part can know another's name.
    names = [f"part{n}_{hashlib.sha256(part.encode()).hexdigest()}" for n, part in enumerate(own)]
    sources = [BuildSource(f"{name}.py", name, f"{prelude}\n{part}") for name, part in zip(names, own)]
    try:
        messages = build.build(sources, options).errors
    except Exception as error:
        if len(own) > 1:
            return [found for part in own for found in analyse([part, prelude], most)]
        if not isinstance(error, CompileError):
            return [None]
        messages = error.messages
    found = [[] for _ in own]
    before = prelude.count("\n") + 1
    for message in messages:
        match = re.match(r"part(\d+)_\w+\.py:(\d+): error: (.*)", message)
        if match is None:
            continue
        number, line = int(match[1]), int(match[2]) - before
        text = re.sub(r" (on|from) line \d+", "", match[3].strip()).replace(f"{names[number]}.", "")
        if line > 0 and len(found[number]) < most:
            found[number].append(f"{text}: {own[number].splitlines()[line - 1].strip()}"[:400])
    return found
"""

MYPY = Analysis("types", _MYPY)
