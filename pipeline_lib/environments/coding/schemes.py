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
from collections.abc import Iterator, Sequence

from pipeline_lib.environments.coding.program import HELPER
from pipeline_lib.environments.coding.scopes import walk_own
from pipeline_lib.environments.coding.usage import MainFunction, MainModule, definitions
from pipeline_lib.environments.coding.wrapping import is_thin_wrapper

SCHEMES = ("fallback", "decorator", "coordinator", "strategy_filter")
CONVENTIONS = ("list", "keep", "pred", "each")

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_CONDITIONALS = (ast.If, ast.IfExp)
#: Functions that apply their first argument to many items.
_APPLIES = frozenset({"map", "filter", "starmap", "reduce", "accumulate"})


@functools.lru_cache(maxsize=4096)
def schemes(code: str, entry_point: str) -> frozenset[str]:
    """Return the schemes that the program's ``entry_point`` follows, a subset of `SCHEMES`.

    Raises:
        SyntaxError: ``code`` is not Python.
    """
    module = MainModule(ast.parse(code).body, HELPER)
    if not module.uses_of_helper(entry_point) or is_thin_wrapper(module, entry_point):
        return frozenset()
    return frozenset(name for function in module.reachable(entry_point) for name in _Reading(function).schemes())


@functools.lru_cache(maxsize=4096)
def convention(code: str) -> str:
    """Return what the helper of a list problem does, by the one expression it returns.

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


class _Reading:
    """What one function does with the helper and with its values."""

    def __init__(self, function: MainFunction) -> None:
        self._function = function
        renamed = {id(value) for values in function.assigned.values() for value in values}
        self._uses = [node for node in function.nodes if function.is_helper(node) and id(node) not in renamed]
        # Names that hold the helper's value; a list made of many values is no such name.
        self._names = {
            name
            for name, given in function.assigned.items()
            if any(isinstance(value, ast.Call) and value.func in self._uses for value in given)
        }

    def schemes(self) -> set[str]:
        """Return the schemes that show in this function."""
        found = {
            name for use in self._uses for name in (*self._repetition(use), *self._safety(use), *self._choice(use))
        }
        values = [
            node
            for node in self._function.nodes
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in self._names
        ]
        found |= {name for value in values for name in self._of_value(value)}
        if self._calls_twice():
            found.add("coordinator")
        # Every scheme processes what the helper gives; where there is no other, that is what the function adds.
        if not found and (any(map(self._is_processed, self._uses)) or any(map(self._is_worked_on, values))):
            found.add("decorator")
        return found

    def _repetition(self, use: ast.AST) -> Iterator[str]:
        """Yield ``coordinator`` if the helper is applied to many items."""
        for above, below in self._path(use):
            match above:
                case ast.For(iter=once) | ast.AsyncFor(iter=once) if below is once:
                    continue
                case ast.comprehension(iter=once) if below is once:
                    return  # what the comprehension goes over is asked for once
                case ast.For() | ast.AsyncFor() | ast.While() | ast.comprehension():
                    yield "coordinator"
                case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                    if not isinstance(below, ast.comprehension):
                        yield "coordinator"
                case ast.Call(func=func) if below is use and func is not use:
                    name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
                    if name in _APPLIES:
                        yield "coordinator"
                    if name == "filter":
                        yield "strategy_filter"
                case ast.keyword(arg="key"):
                    yield "coordinator"

    def _safety(self, use: ast.AST) -> Iterator[str]:
        """Yield ``fallback`` if there is an answer for when the call fails."""
        for above, below in self._path(use):
            match above:
                case ast.Try(body=body, handlers=handlers) if below in body:
                    if any(not _is_raise(handler.body) for handler in handlers):
                        yield "fallback"
                case ast.BoolOp(op=ast.Or(), values=[first, *_]) if below is first and self._test(above) is None:
                    yield "fallback"

    def _choice(self, use: ast.AST) -> Iterator[str]:
        """Yield what the conditions on the way to a call say."""
        test = self._test(use)
        if test is not None:
            yield self._of_test(test)
            return
        for above, below in self._path(use):
            match above:
                case ast.comprehension(ifs=ifs) if below in ifs:
                    yield "strategy_filter"
                case ast.While(test=condition) | ast.Match(subject=condition) if below is condition:
                    yield "strategy_filter"
        for other in self._alternatives(use):
            yield "decorator" if _is_trivial(other) else "strategy_filter"

    def _alternatives(self, use: ast.AST) -> Iterator[Sequence[ast.AST]]:
        """Yield what is done instead wherever a condition keeps the helper from being called."""
        for above, below in self._path(use):
            if isinstance(above, ast.IfExp) and below is not above.test:
                yield [above.orelse if below is above.body else above.body]
            if isinstance(above, ast.If):
                in_body = below in above.body
                other: Sequence[ast.AST] = above.orelse if in_body else above.body
                if not other and in_body and _leaves(above.body):
                    other = self._after(above)
                yield other or [above]
            earlier = (s for s in _before(above, below) if isinstance(s, ast.If) and _leaves(s.body))
            yield from (s.body for s in earlier if not self._is_about_value(s.test))

    def _of_value(self, name: ast.Name) -> Iterator[str]:
        """Yield what one reading of a name that holds the helper's value says."""
        above = self._function.parents[id(name)]
        test = self._test(name)
        if test is not None:
            yield self._of_test(test)
        elif isinstance(above, ast.BoolOp) and isinstance(above.op, ast.Or) and above.values[0] is name:
            yield "fallback"

    def _of_test(self, test: ast.expr) -> str:
        """Say what a condition on the helper's value is for: to notice that there is none, or to choose."""
        conditional = self._function.parents[id(test)]
        assert isinstance(conditional, _CONDITIONALS)
        nothing = _nothing(test)
        if nothing is None:
            return "strategy_filter"
        if isinstance(conditional, ast.IfExp):
            instead: Sequence[ast.AST] = [conditional.body if nothing else conditional.orelse]
            otherwise: Sequence[ast.AST] = [conditional.orelse if nothing else conditional.body]
        else:
            rest = conditional.orelse or (self._after(conditional) if _leaves(conditional.body) else [])
            instead, otherwise = (conditional.body, rest) if nothing else (rest, conditional.body)
        skips = all(isinstance(node, (ast.Pass, ast.Continue, ast.Break)) for node in instead)
        compares = isinstance(test, ast.Compare)
        # ``if ok: ... else: ...`` chooses; with the value used afterwards, it is the value that was missing.
        used = any(self._is_about_value(node) for node in (*otherwise, *self._after(conditional)))
        return "fallback" if not skips and (compares or used) else "strategy_filter"

    def _calls_twice(self) -> bool:
        """Return whether two calls can both happen on the way to one answer."""
        sides = [self._sides(use) for use in self._uses]
        return any(
            not any((condition, not side) in second for condition, side in first)
            for number, first in enumerate(sides)
            for second in sides[:number]
        )

    def _sides(self, use: ast.AST) -> set[tuple[int, bool]]:
        """Return the conditions that a call depends on, each with the side that it is on."""
        sides = set()
        for above, below in self._path(use):
            if isinstance(above, ast.IfExp) and below is not above.test:
                sides.add((id(above), below is above.body))
            if isinstance(above, ast.If) and below is not above.test:
                sides.add((id(above), below in above.body))
            earlier = (s for s in _before(above, below) if isinstance(s, ast.If) and _leaves(s.body))
            sides |= {(id(s), False) for s in earlier}
        return sides

    def _is_processed(self, use: ast.AST) -> bool:
        """Return whether a call's value or its arguments are more than passed on."""
        call = self._function.parents[id(use)]
        if not isinstance(call, ast.Call) or call.func is not use:
            return True
        above = self._function.parents.get(id(call))
        if not isinstance(above, (ast.Return, ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.Expr, ast.Lambda)):
            return True
        return any(not isinstance(argument, (ast.Name, ast.Constant, ast.Starred)) for argument in call.args)

    def _is_worked_on(self, value: ast.AST) -> bool:
        """Return whether a name that holds the helper's value is more than passed on."""
        return not isinstance(self._function.parents[id(value)], (ast.Return, ast.Assign, ast.AnnAssign))

    def _is_about_value(self, node: ast.AST) -> bool:
        return any(inner in self._uses or getattr(inner, "id", None) in self._names for inner in ast.walk(node))

    def _after(self, node: ast.AST) -> Sequence[ast.AST]:
        """Return the statements that follow one in its block."""
        above = self._function.parents[id(node)]
        return next((block[block.index(node) + 1 :] for block in _blocks(above) if node in block), [])

    def _test(self, node: ast.AST) -> ast.expr | None:
        """Return the condition of the ``if`` or conditional expression that ``node`` is part of."""
        for above, below in self._path(node):
            if isinstance(above, _CONDITIONALS) and above.test is below:
                return above.test
        return None

    def _path(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """Yield every node above ``node``, with the one below it on the way."""
        while (above := self._function.parents.get(id(node))) is not None:
            yield above, node
            node = above


def _nothing(test: ast.expr) -> bool | None:
    """Return whether a condition holds when there is no value, or None if it does not ask for that."""
    match test:
        case ast.Compare(ops=[op], comparators=[ast.Constant(value=None)]):
            return isinstance(op, (ast.Is, ast.Eq))
        case ast.UnaryOp(op=ast.Not(), operand=ast.Name() | ast.Call() | ast.NamedExpr()):
            return True
        case ast.Name() | ast.NamedExpr():
            return False
    return None


def _is_trivial(nodes: Sequence[ast.AST]) -> bool:
    """Return whether a branch answers with a name, a constant or a display of such, or raises: an edge case."""
    working = (ast.Call, ast.BinOp, ast.Subscript, ast.Compare, ast.IfExp, ast.BoolOp, ast.If, *_COMPREHENSIONS)
    return all(
        isinstance(node, ast.Raise) or not any(isinstance(inner, working) for inner in ast.walk(node)) for node in nodes
    )


def _is_raise(statements: Sequence[ast.stmt]) -> bool:
    return all(isinstance(statement, ast.Raise) for statement in statements)


def _leaves(statements: Sequence[ast.stmt]) -> bool:
    return any(isinstance(statement, (ast.Return, ast.Raise)) for statement in statements)


def _before(above: ast.AST, below: ast.AST) -> Sequence[ast.AST]:
    """Return the statements that come before one in its block."""
    return next((block[: block.index(below)] for block in _blocks(above) if below in block), [])


def _blocks(node: ast.AST) -> list[list[ast.AST]]:
    """Return the lists of statements that belong to a node."""
    fields = (getattr(node, name, None) for name in ("body", "orelse", "finalbody"))
    return [block for block in fields if isinstance(block, list)]
