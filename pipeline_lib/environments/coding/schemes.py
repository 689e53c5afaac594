"""How a main function works with its helper: the four schemes that the MAGRPO paper names, read off the syntax tree.

- ``fallback``: the main function has an answer of its own for when the helper fails (an exception, None, nothing);
- ``decorator``: it adds something around one plain call: a guard for edge cases, prepared arguments, a processed value;
- ``coordinator``: it splits the work: the helper is applied to many items, or called more than once for one answer;
- ``strategy_filter``: a condition chooses between the helper and another way, or the helper's value is the condition.

A main function may follow several schemes at once, and a thin wrapper follows none.  The paper (arXiv 2508.04652)
describes the schemes in words; these definitions are ours.  They describe the code and say nothing about whether it
works; nothing is executed.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence

from pipeline_lib.environments.coding.conditions import condition_schemes
from pipeline_lib.environments.coding.helper_uses import HelperUses, called, refers
from pipeline_lib.environments.coding.program import HELPER
from pipeline_lib.environments.coding.repetitions import repetition_schemes
from pipeline_lib.environments.coding.usage import MainFunction, MainModule
from pipeline_lib.environments.coding.wrapping import is_thin_wrapper

SCHEMES = ("fallback", "decorator", "coordinator", "strategy_filter")


@functools.lru_cache(maxsize=4096)
def schemes(code: str, entry_point: str) -> frozenset[str]:
    """Return the schemes that the program's ``entry_point`` follows, a subset of `SCHEMES`.

    Raises:
        SyntaxError: ``code`` is not Python.
    """
    module = MainModule(ast.parse(code).body, HELPER)
    if not module.uses_of_helper(entry_point) or is_thin_wrapper(module, entry_point):
        return frozenset()
    functions = module.reachable(entry_point)
    carriers = _carriers(functions, module)
    all_uses = [HelperUses(function, carriers) for function in functions]
    found = frozenset(name for uses in all_uses for name in repetition_schemes(uses) | condition_schemes(uses))
    if not found and any(map(_adds, all_uses)):  # every scheme processes values: only where there is no other
        return frozenset({"decorator"})
    return found


def _carriers(functions: Sequence[MainFunction], module: MainModule) -> frozenset[str]:
    """Return the names of functions, methods and lambdas that lead to the helper."""
    bodies: list[tuple[str, ast.AST, MainFunction]] = []
    for function in functions:
        for node in function.nodes:
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    bodies.append((name, node, function))
        for name, values in function.assigned.items():
            bodies += [(name, value, function) for value in values if _makes_function(value)]
    bodies += [(name, f.node, f) for name in module.names() if (f := module.function(name)) in functions and f]
    found: set[str] = set()
    while True:
        more = {
            name
            for name, body, function in bodies
            if any(function.is_helper(inner) or refers(inner, found) for inner in ast.walk(body))
        }
        if more <= found:
            return frozenset(found)
        found |= more


def _makes_function(value: ast.expr) -> bool:
    match value:
        case ast.Lambda() | ast.Call(func=ast.Name(id="partial") | ast.Attribute(attr="partial")):
            return True
    return False


def _adds(uses: HelperUses) -> bool:
    """Return whether a function does more with the helper's arguments or values than to pass them on."""
    return any(_is_processed(uses, use) for use in uses.nodes) or any(
        not isinstance(uses.parents[id(value)], (ast.Return, ast.Assign, ast.AnnAssign, ast.YieldFrom))
        for value in uses.values
    )


def _is_processed(uses: HelperUses, use: ast.AST) -> bool:
    """Return whether a call's value or its arguments are more than passed on."""
    call = uses.parents.get(id(use))
    if not isinstance(call, ast.Call) or call.func is not use:
        return not (isinstance(call, ast.Call) and called(call) == "partial")
    passed_on = (ast.Return, ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.Expr, ast.Lambda, ast.YieldFrom)
    if not isinstance(uses.parents.get(id(call)), passed_on):
        return True
    return any(_is_prepared(uses.function, argument) for argument in call.args)


def _is_prepared(function: MainFunction, argument: ast.expr) -> bool:
    """Return whether the function makes an argument itself, instead of passing on one of its own."""
    match argument:
        case ast.Name(id=name):
            made = {n.id for n in function.nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            given = function.assigned.get(name, [])
            return name in made and not (given and all(isinstance(value, ast.Name) for value in given))
        case ast.Constant() | ast.Starred():
            return False
    return True
