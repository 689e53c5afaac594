"""Join the parts that agents wrote into a program, and read off the texts what does not need a run.

A text is Python, or Markdown whose fenced blocks are.  A single agent's text has the line ``# <part>.py`` before each
part.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pipeline_lib.environments.modules.class_program import class_program, methods_of
from pipeline_lib.environments.modules.loader import package_program
from pipeline_lib.environments.modules.problems.problem import ModulesProblem
from pipeline_lib.sandbox import Job

_FENCED = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^# (\w+)\.py[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Form:
    """What the text of a part shows.

    Attributes:
        parses: it is Python.
        defines: it binds the names that it must, at its top level.
    """

    parses: bool
    defines: bool


def split_single(text: str, parts: Sequence[str]) -> dict[str, str]:
    """Return the text below each part's heading in a single agent's text: the last one, "" if there is none."""
    pieces = _HEADING.split(unfenced(text))
    found = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    return {part: found.get(part, "").strip("\n") for part in parts}


def join_single(sources: Mapping[str, str]) -> str:
    """Return the text in which a single agent writes all parts."""
    return "\n".join(f"# {part}.py\n{source}" for part, source in sources.items())


def unfenced(text: str) -> str:
    """Return the fenced blocks of a Markdown text one after the other; a text without any as it is."""
    blocks: list[str] = _FENCED.findall(text)
    return "\n".join(blocks) if blocks else text


def single_text(problem: ModulesProblem, sources: Mapping[str, str]) -> str:
    """Return the text in which a single agent writes these parts."""
    ordered = {part: sources[part] for part in problem.parts}
    return "\n".join(ordered.values()) if problem.layout == "class" else join_single(ordered)


def sources_of(problem: ModulesProblem, text: str) -> dict[str, str]:
    """Return the parts in a single agent's text: files below headings, or for each part the whole class."""
    if problem.layout == "class":
        return dict.fromkeys(problem.parts, unfenced(text))
    return split_single(text, problem.parts)


def program(problem: ModulesProblem, sources: Mapping[str, str], top: str) -> str:
    """Return the program of some parts; of a package, the tests call ``top``."""
    if problem.layout == "class":
        return class_program(problem.prelude, problem.entry_point, sources, problem.defines)
    return package_program(sources, top, problem.entry_point)


def solution_jobs(problem: ModulesProblem) -> list[Job]:
    """Return the jobs of a problem's first known solution: all tests of the whole, and those of each part."""
    code = program(problem, problem.references[0], problem.parts[-1])
    tests = (problem.system_tests, *problem.unit_tests.values())
    return [Job(problem.id, code, source, problem.entry_point) for source in tests]


def below(problem: ModulesProblem, part: str) -> tuple[str, ...]:
    """Return the parts that a part builds on, directly or through others, in the order of the parts."""
    wanted = [part]
    for name in wanted:
        wanted += [needed for needed in problem.needs[name] if needed not in wanted]
    return tuple(name for name in problem.parts if name in wanted and name != part)


def form(problem: ModulesProblem, part: str, text: str) -> Form:
    """Return the form of the text of a part."""
    if problem.layout == "class":
        found = methods_of(text, problem.entry_point)
    else:
        found = top_level(text)
    return Form(found is not None, found is not None and set(problem.defines[part]) <= found)


@lru_cache(maxsize=8192)
def top_level(text: str) -> frozenset[str] | None:
    """Return the names that a module binds at its top level; None if it does not parse."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return frozenset(name for statement in tree.body for name in _bound(statement))


def _bound(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds; nothing of what is nested in it."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            found = (node for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))
            return {node.id for node in found if isinstance(node.ctx, ast.Store)}  # not the run of table[run] = 1
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
            return {name}
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {alias.asname or alias.name.partition(".")[0] for alias in names}
    return set()
