"""What the conditions of a function, and its handlers of errors, say about the helper.

A condition on the helper's value either notices that there is none, which is the scheme ``fallback`` if an answer
follows, or chooses: ``strategy_filter``.  A condition on something else chooses between the helper and another way, or
is a guard for an edge case: ``decorator``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from pipeline_lib.environments.coding.helper_uses import CONDITIONALS, HelperUses, called, early_exits, leaves

#: An answer that contains one of these is more than an answer to an edge case.
_WORKS = (
    *(ast.Call, ast.BinOp, ast.Compare, ast.IfExp, ast.BoolOp, ast.If, ast.For, ast.While),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)


def condition_schemes(uses: HelperUses) -> set[str]:
    """Return the schemes that the conditions of a function show."""
    found = {name for use in uses.nodes for name in (*_safety(uses, use), *_choice(uses, use))}
    replaced = _replaced(uses)
    return found | {name for value in uses.values if id(value) not in replaced for name in _of_value(uses, value)}


def _safety(uses: HelperUses, use: ast.AST) -> Iterator[str]:
    """Yield ``fallback`` if there is an answer for when the call fails."""
    for above, below in uses.path(use):
        match above:
            case ast.Try(body=body, handlers=handlers) if below in body:
                if any(not _is_raise(handler.body) for handler in handlers):
                    yield "fallback"
            case ast.With(items=items, body=body) if below in body:
                if any(called(item.context_expr) == "suppress" for item in items):
                    yield "fallback"
            case _:
                if uses.condition(use) is None and _has_default(uses, above, below):
                    yield "fallback"


def _has_default(uses: HelperUses, above: ast.AST, below: ast.AST) -> bool:
    """Return whether ``above`` has an answer for when ``below`` is, or holds, nothing."""
    match above:
        case ast.BoolOp(op=ast.Or(), values=[first, *rest]) if below is first:
            return not any(uses.is_about_value(value) for value in rest)
        case ast.Call(keywords=keywords) if called(above) in ("max", "min"):
            return any(keyword.arg == "default" for keyword in keywords)
        case ast.Call(args=[first, _]) if called(above) == "next":
            return below is first
    return False


def _choice(uses: HelperUses, use: ast.AST) -> Iterator[str]:
    """Yield what the conditions on the way to a call say."""
    test = uses.condition(use)
    if test is not None:
        yield from _of_test(uses, test)
    for above, below in uses.path(use):
        match above:
            case ast.comprehension(ifs=ifs) if below in ifs:
                yield "strategy_filter"
            case ast.While(test=condition) if below is condition:
                yield "strategy_filter"
            case ast.Match(subject=subject) if below is subject:
                yield _of_match(above)
            case ast.BoolOp(op=ast.And(), values=values) if below is not values[0]:
                yield "decorator"  # only where something else holds, the helper is asked
            case ast.Dict(values=values) if below is use and below in values:
                yield "strategy_filter"
    for other in _branches(uses, use):
        if not any(uses.leads_to_helper(node) for node in other):
            is_called = isinstance(parent := uses.parents.get(id(use)), ast.Call) and parent.func is use
            yield "decorator" if is_called and _is_trivial(other) else "strategy_filter"


def _branches(uses: HelperUses, use: ast.AST) -> Iterator[Sequence[ast.AST]]:
    """Yield what is done instead wherever a condition on something else keeps ``use`` from being reached."""
    for above, below in uses.path(use):
        match above:
            case ast.IfExp(test=test) if below is not test and not uses.is_about_value(test):
                yield [above.orelse if below is above.body else above.body]
            case ast.If(test=test) if below is not test and not uses.is_about_value(test):
                in_body = below in above.body
                yield (above.orelse if in_body else above.body) or uses.continuation(above)
            case ast.match_case():
                match_statement = uses.parents[id(above)]
                assert isinstance(match_statement, ast.Match)
                if not uses.is_about_value(match_statement.subject):
                    others = [case.body for case in match_statement.cases if case is not above]
                    yield [statement for body in others for statement in body]
            case ast.ExceptHandler():
                tried = uses.parents[id(above)]
                assert isinstance(tried, ast.Try)
                yield tried.body
        exits = early_exits(above, below)
        yield from (statement.body for statement in exits if not uses.is_about_value(statement.test))


def _of_value(uses: HelperUses, name: ast.AST) -> Iterator[str]:
    """Yield what one reading of a name that holds the helper's value says."""
    test = uses.condition(name)
    if test is not None:
        yield from _of_test(uses, test)
        return
    for above, below in uses.path(name):
        if isinstance(above, ast.While) and below is above.test:
            yield "strategy_filter"
        if isinstance(above, ast.Match) and below is above.subject:
            yield _of_match(above)
        if _has_default(uses, above, below):
            yield "fallback"


def _of_test(uses: HelperUses, test: ast.expr) -> Iterator[str]:
    """Yield what a condition on the helper's value is for: to notice that there is none, or to choose."""
    nothing = _nothing(uses, test)
    if nothing is None:
        yield "strategy_filter"
        return
    instead, otherwise = _sides_of(uses, test, nothing)
    if instead and _is_raise(instead):
        return
    skips = all(isinstance(node, (ast.Pass, ast.Continue, ast.Break)) for node in instead)
    compares = isinstance(test, ast.Compare)
    # ``if ok: ... else: ...`` chooses; with the value used afterwards, it is the value that was missing.
    conditional = uses.parents[id(test)]
    used = any(uses.is_about_value(node) for node in (*otherwise, *uses.after(conditional)))
    yield "fallback" if not skips and (compares or used) else "strategy_filter"


def _sides_of(uses: HelperUses, test: ast.expr, nothing: bool) -> tuple[Sequence[ast.AST], Sequence[ast.AST]]:
    """Return what is done without a value, and with one."""
    conditional = uses.parents[id(test)]
    assert isinstance(conditional, CONDITIONALS)
    if isinstance(conditional, ast.IfExp):
        sides: tuple[Sequence[ast.AST], Sequence[ast.AST]] = [conditional.body], [conditional.orelse]
    else:
        rest = conditional.orelse or (uses.after(conditional) if leaves(conditional.body) else [])
        sides = conditional.body, rest
    return sides if nothing else (sides[1], sides[0])


def _replaced(uses: HelperUses) -> set[int]:
    """Return the ids of all nodes that stand where it was noticed that there is no value."""
    found = set()
    for value in uses.values:
        test = uses.condition(value)
        nothing = None if test is None else _nothing(uses, test)
        if test is not None and nothing is not None:
            instead, _ = _sides_of(uses, test, nothing)
            found |= {id(inner) for node in instead for inner in ast.walk(node)}
    return found


def _nothing(uses: HelperUses, test: ast.expr) -> bool | None:
    """Return whether a condition holds when there is no value, or None if it does not ask for that."""
    match test:
        case ast.BoolOp(op=ast.Or(), values=values):
            return True if all(_nothing(uses, value) for value in values) else None
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _nothing(uses, operand)
            return None if inner is None else not inner
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            if isinstance(left, ast.Call) and called(left) == "len":
                return _too_short(op, right)
            return isinstance(op, (ast.Is, ast.Eq)) if _is_nothing(right, op) else None
        case ast.Call() if called(test) == "isinstance" or test.func in uses.nodes:
            return False
        case ast.Name() | ast.NamedExpr():
            return False
    return None


def _is_nothing(node: ast.expr, op: ast.cmpop) -> bool:
    """Return whether a value stands for "no answer": None, an empty text or collection, -1."""
    match node:
        case ast.Constant(value=None) | ast.Constant(value=""):
            return True
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1)):
            return isinstance(op, (ast.Eq, ast.NotEq))
        case ast.List(elts=[]) | ast.Tuple(elts=[]) | ast.Dict(keys=[]):
            return True
    return False


def _too_short(op: ast.cmpop, bound: ast.expr) -> bool | None:
    """Return what a comparison of a length says: True if it holds for empty values, False if only for others."""
    match op, bound:
        case (ast.Eq(), ast.Constant(value=0)) | (ast.Lt(), ast.Constant(value=1)):
            return True
        case (ast.Gt() | ast.NotEq(), ast.Constant(value=0)) | (ast.GtE(), ast.Constant(value=1)):
            return False
    return None


def _of_match(node: ast.Match) -> str:
    """Say what a match on the helper's value is for: to notice that there is none, or to choose."""
    for case in node.cases:
        match case.pattern:
            case (
                ast.MatchSingleton(value=None)
                | ast.MatchSequence(patterns=[])
                | ast.MatchValue(value=ast.Constant(value=""))
            ):
                return "fallback"
    return "strategy_filter"


def _is_trivial(nodes: Sequence[ast.AST]) -> bool:
    """Return whether a branch is for an edge case: it raises, or answers with a name, a constant or a look-up."""
    return all(
        isinstance(node, ast.Raise) or not any(isinstance(inner, _WORKS) for inner in ast.walk(_stored(node)))
        for node in nodes
    )


def _stored(node: ast.AST) -> ast.AST:
    """Return what a statement adds to a collection, for ``out.append(x)``; else the node itself."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="append" | "add"), args=[value], keywords=[])):
            return value
    return node


def _is_raise(statements: Sequence[ast.AST]) -> bool:
    return all(isinstance(statement, ast.Raise) for statement in statements)
