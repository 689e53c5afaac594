"""Test whether the main function is a thin wrapper, which adds nothing to its helper.

A thin wrapper only ever returns what the helper returns for the wrapper's own, unchanged arguments.  Temporaries,
intermediate functions, dead code and statements that change neither arguments nor value make no difference, so a dummy
statement does not hide a wrapper.  Preparing the arguments, guarding or transforming the value is a contribution.  The
published test compares the body with two fixed forms instead, and any further statement defeats it.
"""

from __future__ import annotations

import ast
import builtins
from collections import deque
from collections.abc import Iterator, Sequence
from types import MappingProxyType

from pipeline_lib.environments.coding.scopes import Function, bindings, body_of, parameters, walk_own
from pipeline_lib.environments.coding.usage import MainFunction, MainModule

#: Methods of builtin types that change the object they are called on: what a type can do and its frozen twin cannot.
_CHANGING = frozenset(
    method
    for changing, frozen in ((list, tuple), (deque, tuple), (set, frozenset), (dict, MappingProxyType))
    for method in set(dir(changing)) - set(dir(frozen)) - {"copy"}
)
#: Functions that leave their arguments as they are, so that calling one for nothing is a dummy statement.
_HARMLESS = frozenset(dir(builtins)) - {"delattr", "eval", "exec", "next", "setattr"}


def is_thin_wrapper(module: MainModule, entry_point: str) -> bool:
    """Return whether the entry point adds nothing to the helper; see the module's docstring."""
    return _wraps(module, entry_point, frozenset())


def _wraps(module: MainModule, name: str, seen: frozenset[str]) -> bool:
    name = module.resolve(name)
    if name in module.aliases:
        return True
    function = module.function(name)
    if function is None or name in seen:
        return False
    node = function.node
    if not isinstance(node, Function):
        return False
    if isinstance(node, ast.Lambda):
        return _is_wrapped(function, node.body, seen | {name})
    live = list(_live(node.body))
    if any(isinstance(inner, (ast.Yield, ast.YieldFrom, ast.Raise)) for inner in walk_own(live)):
        return False
    values = [statement.value for statement in live if isinstance(statement, ast.Return)]
    return bool(values) and all(v is not None and _is_wrapped(function, v, seen | {name}) for v in values)


def _is_wrapped(function: MainFunction, value: ast.expr, seen: frozenset[str]) -> bool:
    """Return whether an expression is the helper's value for the function's unchanged arguments."""
    match value:
        case ast.IfExp(body=yes, orelse=no):
            return _is_wrapped(function, yes, seen) and _is_wrapped(function, no, seen)
        case ast.NamedExpr(value=inner):
            return _is_wrapped(function, inner, seen)
        case ast.Name():
            given = _given_once(function, value.id)
            return given is not None and _is_wrapped(function, given, seen)
        case ast.Call(func=ast.Name() as func):
            through = id(func) in function.module.own and _wraps(function.module, func.id, seen)
            arguments = [*value.args, *(keyword.value for keyword in value.keywords)]
            unchanged = all(_is_passed_through(function, argument) for argument in arguments)
            return unchanged and (function.is_helper(func) or through)
    return False


def _is_passed_through(function: MainFunction, argument: ast.expr) -> bool:
    """Return whether an argument is a constant, a module-level name, or an unchanged parameter."""
    match argument:
        case ast.Constant():
            return True
        case ast.Starred(value=inner):
            return _is_passed_through(function, inner)
        case ast.Name(id=name):
            if id(argument) in function.module.own:
                return True
            if _is_parameter(function, name):
                return _times_bound(function, name) == 0 and not _is_changed(function, name)
            given = _given_once(function, name)
            return given is not None and _is_passed_through(function, given)
    return False


def _given_once(function: MainFunction, name: str) -> ast.expr | None:
    """Return the expression a local name stands for, if it is given exactly once and never changed."""
    values = function.assigned.get(name, [])
    if len(values) != 1 or _is_parameter(function, name) or _times_bound(function, name) != 1:
        return None
    refers_to_itself = any(isinstance(node, ast.Name) and node.id == name for node in walk_own(values))
    return None if refers_to_itself or _is_changed(function, name) else values[0]


def _is_parameter(function: MainFunction, name: str) -> bool:
    assert isinstance(function.node, Function)  # `_wraps` looks into nothing else
    return any(parameter.arg == name for parameter in parameters(function.node))


def _times_bound(function: MainFunction, name: str) -> int:
    assert isinstance(function.node, Function)
    return sum(bound == name for bound, _ in bindings(body_of(function.node)))


def _is_changed(function: MainFunction, name: str) -> bool:
    """Return whether the object behind a local name may be changed in place."""
    for node in function.nodes:
        changed: list[ast.expr] = []
        match node:
            case ast.Subscript(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store() | ast.Del()):
                changed = [node.value]
            case ast.Call(func=ast.Attribute(value=owner, attr=method)) if method in _CHANGING:
                changed = [owner]
            case ast.Expr(value=ast.Call(func=func, args=args)):
                harmless = isinstance(func, ast.Name) and func.id in _HARMLESS
                changed = [] if harmless else list(args)
        if any(isinstance(part, ast.Name) and part.id == name for part in changed):
            return True
    return False


def _live(statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that can be reached: none after a return, none in a branch that is never taken."""
    for statement in statements:
        yield statement
        if isinstance(statement, (ast.Return, ast.Raise, ast.Break, ast.Continue)):
            return
        blocks = _blocks(statement)
        if isinstance(statement, (ast.If, ast.While)) and isinstance(statement.test, ast.Constant):
            blocks = [statement.body if statement.test.value else statement.orelse]
        for block in blocks:
            yield from _live(block)
        if isinstance(statement, ast.If) and all(_leaves(block) for block in blocks):
            return


def _leaves(statements: Sequence[ast.stmt]) -> bool:
    return any(isinstance(statement, (ast.Return, ast.Raise)) for statement in statements)


def _blocks(statement: ast.stmt) -> list[Sequence[ast.stmt]]:
    """Return the blocks of a compound statement; definitions have blocks of their own and count as none."""
    match statement:
        case ast.If(body=body, orelse=orelse) | ast.For(body=body, orelse=orelse) | ast.While(body=body, orelse=orelse):
            return [body, orelse]
        case ast.AsyncFor(body=body, orelse=orelse):
            return [body, orelse]
        case ast.With(body=body) | ast.AsyncWith(body=body):
            return [body]
        case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=finalbody):
            return [body, *(handler.body for handler in handlers), orelse, finalbody]
        case ast.Match(cases=cases):
            return [case.body for case in cases]
    return []
