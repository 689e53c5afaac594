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
from collections.abc import Set as AbstractSet

from pipeline_lib.environments.coding.program import HELPER
from pipeline_lib.environments.coding.scopes import walk_own
from pipeline_lib.environments.coding.usage import MainFunction, MainModule, definitions
from pipeline_lib.environments.coding.wrapping import is_thin_wrapper

SCHEMES = ("fallback", "decorator", "coordinator", "strategy_filter")
CONVENTIONS = ("list", "keep", "pred", "each")

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_CONDITIONALS = (ast.If, ast.IfExp)
#: Functions that apply their first argument until or where it holds.
_CHOOSES = frozenset({"filter", "filterfalse", "takewhile", "dropwhile"})
#: Functions that a function may be passed to without being applied to many items.
_HOLDS = frozenset({"partial", "callable", "isinstance", "print", "wraps", "cache", "lru_cache", "id"})


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
    found = frozenset(name for function in functions for name in _Reading(function, carriers).schemes())
    return found or frozenset(name for function in functions for name in _Reading(function, carriers).additions())


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
            if any(function.is_helper(inner) or _refers(inner, found) for inner in ast.walk(body))
        }
        if more <= found:
            return frozenset(found)
        found |= more


def _makes_function(value: ast.expr) -> bool:
    match value:
        case ast.Lambda() | ast.Call(func=ast.Name(id="partial") | ast.Attribute(attr="partial")):
            return True
    return False


def _refers(node: ast.AST, names: AbstractSet[str]) -> bool:
    """Return whether a node is one of these names, or a method or attribute of such a name."""
    return (isinstance(node, ast.Name) and node.id in names) or (isinstance(node, ast.Attribute) and node.attr in names)


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
    """What one function does with the helper and with its values.

    Args:
        function: the function.
        carriers: names of functions that lead to the helper; calling one for many items is calling the helper.
    """

    def __init__(self, function: MainFunction, carriers: AbstractSet[str]) -> None:
        self._function, self._carriers = function, carriers
        renamed = {id(value) for values in function.assigned.values() for value in values}
        self._uses = [node for node in function.nodes if function.is_helper(node) and id(node) not in renamed]
        # Names that hold the helper's value; a list made of many values is no such name.
        self._names = {
            name
            for name, given in function.assigned.items()
            if any(isinstance(value, ast.Call) and value.func in self._uses for value in given)
        }
        for node in function.nodes:
            match node:
                case ast.Assign(targets=targets, value=ast.Call(func=func)) if func in self._uses:
                    stored = (inner for target in targets for inner in ast.walk(target))
                    self._names |= {n.id for n in stored if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        self._values = [
            node
            for node in function.nodes
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in self._names
        ]
        self._made = {n.id for n in function.nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}

    def schemes(self) -> set[str]:
        """Return the schemes that show in this function."""
        found = {
            name for use in self._uses for name in (*self._repetition(use), *self._safety(use), *self._choice(use))
        }
        replaced = self._replaced()
        found |= {name for value in self._values if id(value) not in replaced for name in self._of_value(value)}
        for node in self._function.nodes:
            if _refers(node, self._carriers) and not self._function.is_helper(node):
                found |= set(self._repetition(node))
                if self._is_inside(node, node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")):
                    found.add("coordinator")
        if self._calls_twice():
            found.add("coordinator")
        return found

    def additions(self) -> set[str]:
        """Return what the function adds to the helper, where there is no scheme: every scheme processes its values."""
        added = any(map(self._is_processed, self._uses)) or any(map(self._is_worked_on, self._values))
        return {"decorator"} if added else set()

    def _repetition(self, use: ast.AST) -> Iterator[str]:
        """Yield ``coordinator`` if the helper, or what leads to it, is applied to many items."""
        returned = tried = False
        for above, below in self._path(use):
            match above:
                case ast.Return():
                    returned = True
                case ast.Try(body=body) if below in body:
                    tried = True
                case ast.Call() if isinstance(below, ast.Lambda) and _called(above) not in _HOLDS:
                    yield "coordinator"
                case ast.Lambda() if isinstance(self._function.parents.get(id(above)), (ast.Call, ast.keyword)):
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
                    name = _called(above)
                    if name not in _HOLDS and (self._function.is_helper(use) or not isinstance(use, ast.Attribute)):
                        yield "coordinator"
                    if name in _CHOOSES:
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
                case ast.With(items=items, body=body) if below in body:
                    if any(_called(item.context_expr) == "suppress" for item in items):
                        yield "fallback"
                case _:
                    if self._test(use) is None and self._has_default(above, below):
                        yield "fallback"

    def _has_default(self, above: ast.AST, below: ast.AST) -> bool:
        """Return whether ``above`` has an answer for when ``below`` is, or holds, nothing."""
        match above:
            case ast.BoolOp(op=ast.Or(), values=[first, *rest]) if below is first:
                return not any(self._is_about_value(value) for value in rest)
            case ast.Call(keywords=keywords) if _called(above) in ("max", "min"):
                return any(keyword.arg == "default" for keyword in keywords)
            case ast.Call(args=[first, _]) if _called(above) == "next":
                return below is first
        return False

    def _choice(self, use: ast.AST) -> Iterator[str]:
        """Yield what the conditions on the way to a call say."""
        test = self._test(use)
        if test is not None:
            yield from self._of_test(test)
        for above, below in self._path(use):
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
        for other in self._alternatives(use):
            called = isinstance(parent := self._function.parents.get(id(use)), ast.Call) and parent.func is use
            yield "decorator" if called and _is_trivial(other) else "strategy_filter"

    def _alternatives(self, use: ast.AST) -> Iterator[Sequence[ast.AST]]:
        """Yield what is done instead wherever a condition keeps the helper from being called."""
        for other in self._branches(use):
            if not any(self._leads_to_helper(node) for node in other):
                yield other

    def _branches(self, use: ast.AST) -> Iterator[Sequence[ast.AST]]:
        for above, below in self._path(use):
            match above:
                case ast.IfExp(test=test) if below is not test and not self._is_about_value(test):
                    yield [above.orelse if below is above.body else above.body]
                case ast.If(test=test) if below is not test and not self._is_about_value(test):
                    in_body = below in above.body
                    yield (above.orelse if in_body else above.body) or self._continuation(above)
                case ast.match_case():
                    match_statement = self._function.parents[id(above)]
                    assert isinstance(match_statement, ast.Match)
                    if not self._is_about_value(match_statement.subject):
                        others = [case.body for case in match_statement.cases if case is not above]
                        yield [statement for body in others for statement in body]
                case ast.ExceptHandler():
                    tried = self._function.parents[id(above)]
                    assert isinstance(tried, ast.Try)
                    yield tried.body
            earlier = (s for s in _before(above, below) if isinstance(s, ast.If) and _leaves(s.body))
            yield from (s.body for s in earlier if not self._is_about_value(s.test))

    def _of_value(self, name: ast.AST) -> Iterator[str]:
        """Yield what one reading of a name that holds the helper's value says."""
        test = self._test(name)
        if test is not None:
            yield from self._of_test(test)
            return
        for above, below in self._path(name):
            if isinstance(above, ast.While) and below is above.test:
                yield "strategy_filter"
            if isinstance(above, ast.Match) and below is above.subject:
                yield _of_match(above)
            if self._has_default(above, below):
                yield "fallback"

    def _of_test(self, test: ast.expr) -> Iterator[str]:
        """Yield what a condition on the helper's value is for: to notice that there is none, or to choose."""
        nothing = self._nothing(test)
        if nothing is None:
            yield "strategy_filter"
            return
        instead, otherwise = self._sides_of(test, nothing)
        if instead and _is_raise(instead):
            return
        skips = all(isinstance(node, (ast.Pass, ast.Continue, ast.Break)) for node in instead)
        compares = isinstance(test, ast.Compare)
        # ``if ok: ... else: ...`` chooses; with the value used afterwards, it is the value that was missing.
        conditional = self._function.parents[id(test)]
        used = any(self._is_about_value(node) for node in (*otherwise, *self._after(conditional)))
        yield "fallback" if not skips and (compares or used) else "strategy_filter"

    def _sides_of(self, test: ast.expr, nothing: bool) -> tuple[Sequence[ast.AST], Sequence[ast.AST]]:
        """Return what is done without a value, and with one."""
        conditional = self._function.parents[id(test)]
        assert isinstance(conditional, _CONDITIONALS)
        if isinstance(conditional, ast.IfExp):
            sides: tuple[Sequence[ast.AST], Sequence[ast.AST]] = [conditional.body], [conditional.orelse]
        else:
            rest = conditional.orelse or (self._after(conditional) if _leaves(conditional.body) else [])
            sides = conditional.body, rest
        return sides if nothing else (sides[1], sides[0])

    def _replaced(self) -> set[int]:
        """Return the ids of all nodes that stand where it was noticed that there is no value."""
        found = set()
        for value in self._values:
            test = self._test(value)
            if test is not None and self._nothing(test) is not None:
                instead, _ = self._sides_of(test, bool(self._nothing(test)))
                found |= {id(inner) for node in instead for inner in ast.walk(node)}
        return found

    def _nothing(self, test: ast.expr) -> bool | None:
        """Return whether a condition holds when there is no value, or None if it does not ask for that."""
        match test:
            case ast.BoolOp(op=ast.Or(), values=values):
                return True if all(self._nothing(value) for value in values) else None
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self._nothing(operand)
                return None if inner is None else not inner
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                if isinstance(left, ast.Call) and _called(left) == "len":
                    return _too_short(op, right)
                return isinstance(op, (ast.Is, ast.Eq)) if _is_nothing(right, op) else None
            case ast.Call() if _called(test) == "isinstance" or test.func in self._uses:
                return False
            case ast.Name() | ast.NamedExpr():
                return False
        return None

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
        call = self._function.parents.get(id(use))
        if not isinstance(call, ast.Call) or call.func is not use:
            return not (isinstance(call, ast.Call) and _called(call) == "partial")
        above = self._function.parents.get(id(call))
        passed_on = (ast.Return, ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.Expr, ast.Lambda, ast.YieldFrom)
        if not isinstance(above, passed_on):
            return True
        return any(self._is_prepared(argument) for argument in call.args)

    def _is_prepared(self, argument: ast.expr) -> bool:
        match argument:
            case ast.Name(id=name):
                given = self._function.assigned.get(name, [])
                return name in self._made and not (given and all(isinstance(value, ast.Name) for value in given))
            case ast.Constant() | ast.Starred():
                return False
        return True

    def _is_worked_on(self, value: ast.AST) -> bool:
        """Return whether a name that holds the helper's value is more than passed on."""
        above = self._function.parents[id(value)]
        return not isinstance(above, (ast.Return, ast.Assign, ast.AnnAssign, ast.YieldFrom))

    def _is_about_value(self, node: ast.AST) -> bool:
        return any(inner in self._uses or getattr(inner, "id", None) in self._names for inner in ast.walk(node))

    def _leads_to_helper(self, node: ast.AST) -> bool:
        return any(inner in self._uses or _refers(inner, self._carriers) for inner in ast.walk(node))

    def _is_inside(self, node: ast.AST, name: str) -> bool:
        """Return whether a node stands in the body of the function ``name``: a call of itself."""
        inside = (above for above, _ in self._path(node))
        return any(
            isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef)) and above.name == name for above in inside
        )

    def _after(self, node: ast.AST) -> Sequence[ast.AST]:
        """Return the statements that follow one in its block."""
        above = self._function.parents.get(id(node))
        if above is None:
            return []
        return next((block[block.index(node) + 1 :] for block in _blocks(above) if node in block), [])

    def _continuation(self, node: ast.AST) -> Sequence[ast.AST]:
        """Return the statements that are executed after one, in its block or in one around it."""
        while (above := self._function.parents.get(id(node))) is not None:
            if following := self._after(node):
                return following
            if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                break
            node = above
        return []

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


def _called(node: ast.AST) -> str:
    """Return the name of the function or method that a call calls; empty for anything else."""
    match node:
        case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
            return name
    return ""


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
    working = (ast.Call, ast.BinOp, ast.Compare, ast.IfExp, ast.BoolOp, ast.If, ast.For, ast.While, *_COMPREHENSIONS)
    return all(
        isinstance(node, ast.Raise) or not any(isinstance(inner, working) for inner in ast.walk(_stored(node)))
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


def _leaves(statements: Sequence[ast.stmt]) -> bool:
    return any(isinstance(statement, (ast.Return, ast.Raise, ast.Continue)) for statement in statements)


def _before(above: ast.AST, below: ast.AST) -> Sequence[ast.AST]:
    """Return the statements that come before one in its block."""
    return next((block[: block.index(below)] for block in _blocks(above) if below in block), [])


def _blocks(node: ast.AST) -> list[list[ast.AST]]:
    """Return the lists of statements that belong to a node."""
    fields = (getattr(node, name, None) for name in ("body", "orelse", "finalbody"))
    return [block for block in fields if isinstance(block, list)]
