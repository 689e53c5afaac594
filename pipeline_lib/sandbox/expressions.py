"""Static analysis of expressions in tests: which are constant, and which calls are certain to happen."""

from __future__ import annotations

import ast
from typing import Any

from pipeline_lib.sandbox.inside import messages
from pipeline_lib.sandbox.inside.plain import BadValue

# The value of an expression with only these nodes does not depend on the candidate.
_CONSTANT_NODES = (
    ast.Constant,
    ast.Tuple,
    ast.List,
    ast.Set,
    ast.Dict,
    ast.UnaryOp,
    ast.BinOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.expr_context,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
)
# An assert with one call of the candidate and otherwise only these nodes makes that call exactly once, in order.
_STRAIGHT_NODES = (*_CONSTANT_NODES, ast.Call, ast.Name)
_BRANCHING_NODES = (ast.BoolOp, ast.IfExp)
_PURE = frozenset(
    [
        "abs",
        "bool",
        "dict",
        "float",
        "int",
        "len",
        "list",
        "max",
        "min",
        "round",
        "set",
        "sorted",
        "str",
        "sum",
        "tuple",
    ]
)


def constant_truth(test: ast.expr) -> bool | None:
    """Return the truth value of a constant expression, else None; False if evaluating it raises."""
    if not all(isinstance(node, _CONSTANT_NODES) for node in ast.walk(test)):
        return None
    try:
        return bool(eval(compile(ast.Expression(test), "<constant>", "eval"), {"__builtins__": {}}))
    except Exception:
        return False


def foresee(
    body: list[ast.stmt], check: ast.FunctionDef | None, names: frozenset[str]
) -> tuple[tuple[bytes, bytes], ...]:
    """Return arguments and frames of the candidate's first calls, up to the first one that is not certain."""
    if check is not None:
        around = [node for statement in body if statement is not check for node in ast.walk(statement)]
        if check.decorator_list or any(isinstance(node, ast.Call | ast.Assert) for node in around):
            return ()
        body = check.body
    requests: list[tuple[bytes, bytes]] = []
    for statement in body:
        if isinstance(statement, ast.Assert):
            if constant_truth(statement.test) is not None:
                continue
            args = _only_call(statement.test, names)
            if args is None:
                break
            try:
                request = messages.write_call(len(requests) + 1, args, {}, early=True)
            except BadValue:
                break
            requests.append((messages.write_request(*args), messages.framed(request)))
        elif not isinstance(statement, ast.Pass | ast.Import | ast.ImportFrom) and not (
            isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        ):
            break
    return tuple(requests)


def _only_call(test: ast.expr, names: frozenset[str]) -> list[Any] | None:
    """Return the arguments of the candidate's call in an expression that calls it exactly once, else None."""
    nodes = list(ast.walk(test))
    for node in nodes:
        if not isinstance(node, _STRAIGHT_NODES) or isinstance(node, _BRANCHING_NODES):
            return None
        if isinstance(node, ast.Compare) and len(node.ops) > 1:
            return None  # a chain of comparisons may stop early
        if isinstance(node, ast.Name) and node.id not in names | _PURE:
            return None
        if isinstance(node, ast.Call) and (node.keywords or not isinstance(node.func, ast.Name)):
            return None
    found = [node for node in nodes if isinstance(node, ast.Name) and node.id in names]
    called = [node for node in nodes if isinstance(node, ast.Call) and node.func in found]
    if len(found) != 1 or len(called) != 1 or any(map(_is_ambiguous, ast.walk(called[0]))):
        return None
    try:
        return [ast.literal_eval(argument) for argument in called[0].args]
    except (ValueError, TypeError):
        return None


def _is_ambiguous(node: ast.AST) -> bool:
    """Return whether ``marshal`` may write the literal in two ways, or in the same way as something else."""
    # The order of a set differs between processes; bytes are written like a bytearray.
    return isinstance(node, ast.Set) or (isinstance(node, ast.Constant) and isinstance(node.value, bytes))
