"""Extract the Python code from an agent's text: fences and prose are removed, the rest becomes a syntax tree.

Promises: `extract` returns for any text; parts that Python cannot parse are left out and reported with line and column;
parts that parse are kept unchanged, except for statements that would only run tests or print when the program is
loaded.  It does not execute, compile or judge the code.
"""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pipeline_lib.environments.coding.scopes import bindings, import_name, module_references, walk_own

#: Longest text that is parsed, in characters; far above the length of an action.
MAX_TEXT = 65_536
#: Characters that are parsed in search of code among broken code and prose; about a second's work, rarely needed.
MAX_SEARCH = 1_000_000

#: File name of an agent's text in warnings.  Warnings about invalid escapes in it are ignored; the filter is set once,
#: because setting and restoring filters around every parse would not be thread-safe.
_FILE = "<agent>"
warnings.filterwarnings("ignore", module=re.escape(_FILE))

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_KEPT = (*_DEFINITIONS, ast.Import, ast.ImportFrom)
_STATEMENTS_OF_STATE = (
    *(ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr),
    *(ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match),
)
_FENCES = ("```", "~~~")
_STARTS_OF_CODE = ("def ", "class ", "async ", "import ", "from ", "@")


@dataclass(frozen=True, slots=True)
class ParseError:
    """Where Python stopped understanding an agent's text; lines and columns count from 1."""

    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.message}"


@dataclass(frozen=True, slots=True)
class Extracted:
    """The Python in one agent's text."""

    body: tuple[ast.stmt, ...]  #: the statements worth keeping, in the order they were written
    #: The first definition or import that could not be parsed, or why nothing at all was found; None when all code in
    #: the text was understood (prose around it is no error).
    error: ParseError | None


def extract(text: str, wanted: Iterable[str] = ()) -> Extracted:
    """Return the Python in ``text``.

    Args:
        text: of an agent: code, code in markdown fences, code among prose, or no code at all.
        wanted: names that the program must define; statements that they need are kept.
    """
    if len(text) > MAX_TEXT:
        return Extracted((), ParseError(1, 1, f"the text is longer than {MAX_TEXT} characters"))
    try:
        tree = _parse(text)
        if isinstance(tree, ast.Module):
            statements, error = tree.body, None
        else:
            statements, error = _salvage(text)
            error = error or (None if statements else tree)
        kept = _without_tests(statements, set(wanted))
    except RecursionError:
        return Extracted((), ParseError(1, 1, "nested too deeply"))
    if not kept and error is None:
        error = ParseError(1, 1, "no function, class, import or constant is defined")
    return Extracted(tuple(kept), error)


def _parse(source: str) -> ast.Module | ParseError:
    try:
        return ast.parse(source, filename=_FILE)
    except SyntaxError as error:
        return ParseError(error.lineno or 1, error.offset or 1, error.msg or "invalid syntax")
    except (RecursionError, MemoryError):
        return ParseError(1, 1, "nested too deeply")
    except ValueError as error:  # null bytes, lone surrogates
        return ParseError(1, 1, str(error).splitlines()[0])


def _salvage(text: str) -> tuple[list[ast.stmt], ParseError | None]:
    """Parse what can be parsed: the text as one run of lines, or cut at its fences, whichever keeps more."""
    lines = text.splitlines()
    fences = [number for number, line in enumerate(lines) if line.lstrip().startswith(_FENCES)]
    whole = _pieces(lines, 0)
    if not fences:
        return whole
    inside: list[ast.stmt] = []
    first_error: ParseError | None = None
    for start, end in zip([0, *(number + 1 for number in fences)], [*fences, len(lines)], strict=True):
        statements, error = _pieces(textwrap.dedent("\n".join(lines[start:end])).splitlines(), start)
        inside, first_error = inside + statements, first_error or error
    return max((inside, first_error), whole, key=lambda read: _lines_of_code(read[0]))


def _lines_of_code(statements: Iterable[ast.stmt]) -> int:
    return sum((s.end_lineno or s.lineno) - s.lineno + 1 for s in statements if not isinstance(s, ast.Expr))


def _pieces(lines: Sequence[str], offset: int) -> tuple[list[ast.stmt], ParseError | None]:
    """Parse the longest runs of whole top-level statements; a run begins and ends at lines that are not indented.

    Where Python stops, the run is cut before the top-level line that holds the error, so each attempt is shorter than
    the one before it.  The search ends early on texts made to be slow (`MAX_SEARCH`).

    Returns:
        The statements, and the first error at the start of a definition or import (numbered from ``offset``).
    """
    starts = [number for number, line in enumerate(lines) if line and not line[0].isspace()]
    statements: list[ast.stmt] = []
    first_error: ParseError | None = None
    searched = 0
    at = 0  # index into starts
    while at < len(starts) and searched < MAX_SEARCH:
        end = len(starts)
        error: ParseError | None = None
        while end > at:
            source = "\n".join(lines[starts[at] : starts[end] if end < len(starts) else len(lines)])
            searched += len(source)
            tree = _parse(source) if searched < MAX_SEARCH else ParseError(1, 1, "too much of the text is broken")
            if isinstance(tree, ast.Module):
                statements += tree.body
                break
            error = replace(tree, line=tree.line + starts[at])
            holds = max((i for i in range(at, end) if starts[i] < error.line), default=at)
            end = min(holds, end - 1)
        if error is not None and first_error is None and lines[starts[end]].startswith(_STARTS_OF_CODE):
            first_error = replace(error, line=error.line + offset)
        at = end + 1
    return statements, first_error


def _without_tests(statements: Sequence[ast.stmt], wanted: set[str]) -> list[ast.stmt]:
    """Drop what only tests, prints or demonstrates; keep definitions, imports, constants and the state that they read.

    Anything else at the top level that does something (a call, a loop, a condition) is kept if it binds or changes a
    module-level name that something kept reads, like a table that a function looks up, and dropped otherwise, like
    ``result = main([1, 2])``.
    """
    keep = {id(s) for s in statements if isinstance(s, _KEPT) or _is_constant(s)}
    if len(keep) == len(statements):
        return list(statements)
    imported = {import_name(a) for s in statements if isinstance(s, (ast.Import, ast.ImportFrom)) for a in s.names}
    candidates = [s for s in statements if isinstance(s, _STATEMENTS_OF_STATE) and not _is_main_guard(s)]
    read = wanted | {name.id for name in module_references([s for s in statements if id(s) in keep])}
    while more := [s for s in candidates if id(s) not in keep and (_touched(s) - imported) & read]:
        keep |= set(map(id, more))
        read |= {name.id for name in module_references(more)}
    return [s for s in statements if id(s) in keep]


def _is_constant(statement: ast.stmt) -> bool:
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
        return False
    return not any(isinstance(node, (ast.Call, ast.Await)) for node in ast.walk(statement))


def _is_main_guard(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and any(
        isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(statement.test)
    )


def _touched(statement: ast.stmt) -> set[str]:
    """Return the module-level names that a statement binds, or changes through a method, an item or an attribute."""
    touched = {name for name, _ in bindings([statement])}
    for node in walk_own([statement]):
        if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, (ast.Store, ast.Del)):
            touched.add(_base(node))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            touched.add(_base(node.value.func) if isinstance(node.value.func, ast.Attribute) else "")
    return touched


def _base(node: ast.expr) -> str:
    """Return the name that an item or attribute belongs to (``table`` for ``table[0].append``), or ""."""
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
