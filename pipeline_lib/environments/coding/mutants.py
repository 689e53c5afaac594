"""Mutants of a source: copies with one small change each, which tests of its behaviour should notice.

The changes: an integer plus and minus one, a truth value negated, another comparison, another arithmetic or logical
operator, a sign or a ``not`` left out, the branches of a conditional expression exchanged, a condition of a
comprehension left out, a call of one argument replaced by the argument.  Strings, names and statements stay.  Nothing
is executed here, and nothing is random: the same source gives the same mutants.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from typing import Any

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}

_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
}


@functools.lru_cache(maxsize=4096)
def mutants(source: str, limit: int) -> tuple[str, ...]:
    """Return up to ``limit`` different mutants of a source, none of them equal to it as text.

    If there are more, they are taken at equal distances in the source.  A source that is not Python, or is nested too
    deeply, has none.

    Args:
        source: Python.
        limit: greatest number of mutants.
    """
    try:
        tree = ast.parse(source)
        original = ast.unparse(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    sites = list(_sites(tree))
    if len(sites) > limit:
        sites = [sites[number * len(sites) // limit] for number in range(limit)]
    found: dict[str, None] = {}
    for holder, key, changed in sites:
        kept = holder[key]
        holder[key] = changed
        try:
            found[ast.unparse(tree)] = None
        except (ValueError, RecursionError):  # such as a formatted string without a source form in this Python
            continue
        finally:
            holder[key] = kept
    found.pop(original, None)
    return tuple(found)


def _sites(tree: ast.AST) -> Iterator[tuple[Any, Any, ast.AST]]:
    """Yield every change: the list, or the attributes of a node, in which it is made, the key there, the new node."""
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            holder: Any = value if isinstance(value, list) else vars(parent)
            for key in range(len(value)) if isinstance(value, list) else (field,):
                if isinstance(holder[key], ast.AST):
                    yield from ((holder, key, changed) for changed in _changes(holder[key]))


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what may stand in place of a node."""
    match node:
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
        case ast.Compare(left=left, ops=[operator], comparators=values):
            yield ast.Compare(left, [_COMPARISONS[type(operator)]()], values)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _ARITHMETIC:
            yield ast.BinOp(left, _ARITHMETIC[type(operator)](), right)
        case ast.BoolOp(op=operator, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.IfExp(test=test, body=body, orelse=other):
            yield ast.IfExp(test, other, body)
        case ast.comprehension(ifs=conditions) if conditions:
            for number in range(len(conditions)):
                rest = conditions[:number] + conditions[number + 1 :]
                yield ast.comprehension(node.target, node.iter, rest, node.is_async)
        case ast.Call(args=[argument], keywords=[]) if not isinstance(argument, (ast.Starred, ast.GeneratorExp)):
            yield argument
