"""Split the tests of a dataset problem into visible ones and hidden ones, which give the reward.

The unit is a case as the sandbox counts it: an ``assert`` in the syntax tree that is not constant.  Both parts keep all
other statements, so that every assert has what it needs.  Every case is in exactly one of the parts.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.sandbox.tests_source import ALWAYS_TRUE, BadTests, count_cases, is_always_true


def as_check(source: str, entry_point: str) -> str:
    """Return tests as ``def check(candidate)``; bare asserts on ``entry_point`` are put into such a function.

    Raises:
        ProblemsError: the source does not parse.
    """
    tree = _parse(source)
    if any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in tree.body):
        return source
    renamed = _Renamed(entry_point).visit(tree)
    body = "\n".join(ast.unparse(node) for node in renamed.body) or "pass"
    return "def check(candidate):\n" + "\n".join(f"    {line}" for line in body.splitlines()) + "\n"


def split_tests(source: str, entry_point: str, visible: int) -> tuple[str, str]:
    """Return the visible tests, which are the first ``visible`` cases, and the hidden ones, which are never empty.

    Args:
        source: defines ``check(candidate)``.
        entry_point: name of the function under test.
        visible: largest number of visible cases; without any, the visible tests are empty.

    Raises:
        ProblemsError: the source does not parse or has no case.
    """
    tree = _parse(source)
    cases = [number for number, node in enumerate(_asserts(tree)) if _is_case(node, entry_point)]
    if not cases:
        raise ProblemsError("the tests contain no assert that a program could fail")
    seen = cases[: min(visible, len(cases) - 1)]
    if not seen:
        return "", source
    hidden = [number for number in cases if number not in seen]
    return _keep(source, seen), _keep(source, hidden)


def _parse(source: str) -> ast.Module:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise ProblemsError(f"the tests do not parse: {error}") from None
    for node in _asserts(tree):
        if is_always_true(node):
            raise ProblemsError(f"the tests, line {node.lineno}: {ALWAYS_TRUE}")
    return tree


def _asserts(tree: ast.AST) -> list[ast.Assert]:
    asserts = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    return sorted(asserts, key=lambda node: (node.lineno, node.col_offset))


def _is_case(node: ast.Assert, entry_point: str) -> bool:
    try:
        return count_cases(ast.unparse(node), entry_point) == 1
    except BadTests:
        return False


def _keep(source: str, numbers: Collection[int]) -> str:
    tree = ast.parse(source)
    dropped = {id(node) for number, node in enumerate(_asserts(tree)) if number not in numbers}
    return ast.unparse(ast.fix_missing_locations(_Without(dropped).visit(tree))) + "\n"


class _Without(ast.NodeTransformer):
    """Replaces some asserts by ``pass``, which keeps a block from becoming empty."""

    def __init__(self, dropped: set[int]) -> None:
        self.dropped = dropped

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        return ast.copy_location(ast.Pass(), node) if id(node) in self.dropped else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        self.generic_visit(node)
        node.body = [child for child in node.body if not isinstance(child, ast.Pass)] or [ast.Pass()]
        return node


class _Renamed(ast.NodeTransformer):
    """Replaces the name of the tested function by ``candidate``."""

    def __init__(self, entry_point: str) -> None:
        self.entry_point = entry_point

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.copy_location(ast.Name("candidate", node.ctx), node) if node.id == self.entry_point else node
