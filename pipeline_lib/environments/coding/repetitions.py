"""Whether a function calls the helper for many items, or more than once for one answer: the scheme ``coordinator``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pipeline_lib.environments.coding.helper_uses import HelperUses, called, early_exits

#: Functions that apply their first argument until or where it holds.
_CHOOSES = frozenset({"filter", "filterfalse", "takewhile", "dropwhile"})
#: Functions that a function may be passed to without being applied to many items.
_HOLDS = frozenset({"partial", "callable", "isinstance", "print", "wraps", "cache", "lru_cache", "id"})


def repetition_schemes(uses: HelperUses) -> set[str]:
    """Return the schemes that the repetitions of a function show."""
    found = {name for use in uses.nodes for name in _repeated(uses, use)}
    for node in uses.carriers():
        found |= set(_repeated(uses, node))
        if _is_inside(uses, node, node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")):
            found.add("coordinator")
    if _calls_twice(uses):
        found.add("coordinator")
    return found


def _repeated(uses: HelperUses, use: ast.AST) -> Iterator[str]:
    """Yield ``coordinator`` if the helper, or what leads to it, is applied to many items."""
    returned = tried = False
    for above, below in uses.path(use):
        match above:
            case ast.Return():
                returned = True
            case ast.Try(body=body) if below in body:
                tried = True
            case ast.Call() if isinstance(below, ast.Lambda) and called(above) not in _HOLDS:
                yield "coordinator"
            case ast.Lambda() if isinstance(uses.parents.get(id(above)), (ast.Call, ast.keyword)):
                continue  # it is applied where it stands
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                return  # whether this function is called for many items is asked of its name
            case ast.For(iter=once) | ast.AsyncFor(iter=once) if below is once:
                continue
            case ast.comprehension(iter=once) if below is once:
                return  # what the comprehension goes over is asked for once
            case ast.For() | ast.AsyncFor() | ast.While() if returned and not tried:
                continue  # the first call leaves the loop
            case ast.For() | ast.AsyncFor() | ast.While() | ast.comprehension():
                yield "coordinator"
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                if not isinstance(below, ast.comprehension):
                    yield "coordinator"
            case ast.Call(func=func) if below is use and func is not use:
                name = called(above)
                if name not in _HOLDS and (uses.function.is_helper(use) or not isinstance(use, ast.Attribute)):
                    yield "coordinator"
                if name in _CHOOSES:
                    yield "strategy_filter"
            case ast.keyword(arg="key"):
                yield "coordinator"


def _is_inside(uses: HelperUses, node: ast.AST, name: str) -> bool:
    """Return whether a node stands in the body of the function ``name``: a call of itself."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return any(isinstance(above, functions) and above.name == name for above, _ in uses.path(node))


def _calls_twice(uses: HelperUses) -> bool:
    """Return whether two calls can both happen on the way to one answer."""
    sides = [_sides(uses, use) for use in uses.nodes]
    return any(
        not any((condition, not side) in second for condition, side in first)
        for number, first in enumerate(sides)
        for second in sides[:number]
    )


def _sides(uses: HelperUses, use: ast.AST) -> set[tuple[int, bool]]:
    """Return the conditions that a call depends on, each with the side that it is on."""
    sides = set()
    for above, below in uses.path(use):
        if isinstance(above, ast.IfExp) and below is not above.test:
            sides.add((id(above), below is above.body))
        if isinstance(above, ast.If) and below is not above.test:
            sides.add((id(above), below in above.body))
        sides |= {(id(statement), False) for statement in early_exits(above, below)}
    return sides
