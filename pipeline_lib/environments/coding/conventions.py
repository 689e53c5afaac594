"""What the helper of a list problem takes and returns, read off the one expression that it returns."""

from __future__ import annotations

import ast
import functools

from pipeline_lib.environments.coding.program import HELPER
from pipeline_lib.environments.coding.scopes import walk_own
from pipeline_lib.environments.coding.usage import definitions

CONVENTIONS = ("list", "keep", "pred", "each")


@functools.lru_cache(maxsize=4096)
def convention(code: str) -> str:
    """Return one of `CONVENTIONS`, or ``other``.

    ``list``: a list of transformed items; ``keep``: some of the items, unchanged; ``pred``: a condition on one item;
    ``each``: one item transformed, or None; ``other``: anything else.

    Raises:
        SyntaxError: ``code`` is not Python.
    """
    node = definitions(ast.parse(code).body).get(HELPER)
    if isinstance(node, ast.Lambda):
        values: list[ast.expr | None] = [node.body]
    elif isinstance(node, ast.FunctionDef):
        values = [inner.value for inner in walk_own(node.body) if isinstance(inner, ast.Return)]
    else:
        return "other"
    match values:
        case [ast.ListComp(elt=ast.Name(id=name), generators=[ast.comprehension(target=ast.Name(id=target))]) as made]:
            return "keep" if name == target and made.generators[0].ifs else "list"
        case [ast.ListComp()]:
            return "list"
        case [ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not())]:
            return "pred"
        case [ast.IfExp(body=ast.Constant(value=None)) | ast.IfExp(orelse=ast.Constant(value=None))]:
            return "each"
    return "other"
