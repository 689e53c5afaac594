"""How a main function works with its helper: the four schemes that the MAGRPO paper names, read off the syntax tree.

- ``fallback``: the main function has an answer of its own for when the helper fails (an exception, None, nothing);
- ``decorator``: it adds something around one plain call: a guard for edge cases, prepared arguments, a processed value;
- ``coordinator``: it splits the work: the helper is applied to many items, or called more than once for one answer;
- ``strategy_filter``: a condition chooses between the helper and another way, or the helper's value is the condition.

A main function may follow several schemes at once, and a thin wrapper follows none.  The paper (arXiv 2508.04652)
describes the schemes in words; these definitions are ours.  They describe the code and say nothing about whether it
works; nothing is executed.

A condition on the helper's value either notices that there is none, which is ``fallback`` if an answer follows, or
chooses: ``strategy_filter``.  A condition on something else chooses between the helper and another way, or is a guard
for an edge case: ``decorator``.

`convention` tells what the helper of a list problem takes and returns.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from pipeline_lib.environments.coding.program import HELPER
from pipeline_lib.environments.coding.scopes import walk_own
from pipeline_lib.environments.coding.usage import MainFunction, MainModule, definitions, is_thin_wrapper

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
    followed = frozenset(name for uses in all_uses for name in repetition_schemes(uses) | condition_schemes(uses))
    if not followed and any(map(_adds, all_uses)):  # every scheme processes values: only where there is no other
        return frozenset({"decorator"})
    return followed


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
    carriers: set[str] = set()
    leading = [name for name, body, function in bodies if any(map(function.is_helper, ast.walk(body)))]
    while leading:
        carriers |= set(leading)
        rest = ((name, body) for name, body, _ in bodies if name not in carriers)
        leading = [name for name, body in rest if any(refers(inner, carriers) for inner in ast.walk(body))]
    return frozenset(carriers)


def _makes_function(value: ast.expr) -> bool:
    return isinstance(value, ast.Lambda) or called(value) == "partial"


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


class HelperUses:
    """The places in one function where the helper, its values, or what leads to it stand.

    Args:
        function: the function.
        carriers: names of functions that lead to the helper.

    Attributes:
        parents: the node above each node, by the id of the lower one.
        nodes: the names that mean the helper, where it is called or handed on.
        values: the names that hold what the helper returned, where they are read.
    """

    def __init__(self, function: MainFunction, carriers: AbstractSet[str]) -> None:
        self.function, self.parents, self._carriers = function, function.parents, carriers
        renamed = {id(value) for values in function.assigned.values() for value in values}
        self.nodes = [node for node in function.nodes if function.is_helper(node) and id(node) not in renamed]
        # Names that hold the helper's value; a list made of many values is no such name.
        self._names = {
            name
            for name, given in function.assigned.items()
            if any(isinstance(value, ast.Call) and value.func in self.nodes for value in given)
        }
        for node in function.nodes:
            match node:
                case ast.Assign(targets=targets, value=ast.Call(func=func)) if func in self.nodes:
                    stored = (inner for target in targets for inner in ast.walk(target))
                    self._names |= {n.id for n in stored if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        read = (n for n in function.nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
        self.values = [name for name in read if name.id in self._names]

    def carriers(self) -> Iterator[ast.AST]:
        """Yield the nodes that name something which leads to the helper."""
        for node in self.function.nodes:
            if refers(node, self._carriers) and not self.function.is_helper(node):
                yield node

    def is_about_value(self, node: ast.AST) -> bool:
        """Return whether the helper or one of its values stands in a tree."""
        return any(inner in self.nodes or getattr(inner, "id", None) in self._names for inner in ast.walk(node))

    def leads_to_helper(self, node: ast.AST) -> bool:
        """Return whether the helper, or what leads to it, stands in a tree."""
        return any(inner in self.nodes or refers(inner, self._carriers) for inner in ast.walk(node))

    def path(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """Yield every node above ``node``, with the one below it on the way."""
        while (above := self.parents.get(id(node))) is not None:
            yield above, node
            node = above

    def condition(self, node: ast.AST) -> ast.expr | None:
        """Return the condition of the ``if`` or conditional expression that ``node`` is part of."""
        for above, below in self.path(node):
            if isinstance(above, (ast.If, ast.IfExp)) and above.test is below:
                return above.test
        return None

    def after(self, node: ast.AST) -> Sequence[ast.AST]:
        """Return the statements that follow one in its block."""
        above = self.parents.get(id(node))
        if above is None:
            return []
        return next((block[block.index(node) + 1 :] for block in _blocks(above) if node in block), [])

    def continuation(self, node: ast.AST) -> Sequence[ast.AST]:
        """Return the statements that are executed after one, in its block or in one around it."""
        while (above := self.parents.get(id(node))) is not None:
            if following := self.after(node):
                return following
            if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                break
            node = above
        return []


def refers(node: ast.AST, names: AbstractSet[str]) -> bool:
    """Return whether a node is one of these names, or a method or attribute of such a name."""
    return (isinstance(node, ast.Name) and node.id in names) or (isinstance(node, ast.Attribute) and node.attr in names)


def called(node: ast.AST) -> str:
    """Return the name of the function or method that a call calls; empty for anything else."""
    match node:
        case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
            return name
    return ""


def leaves(statements: Sequence[ast.stmt]) -> bool:
    """Return whether a block ends what is around it: the function, or a pass of the loop."""
    return any(isinstance(statement, (ast.Return, ast.Raise, ast.Continue)) for statement in statements)


def early_exits(above: ast.AST, below: ast.AST) -> Iterator[ast.If]:
    """Yield the ``if`` statements before ``below`` in its block that keep it from being reached."""
    earlier = next((block[: block.index(below)] for block in _blocks(above) if below in block), [])
    yield from (statement for statement in earlier if isinstance(statement, ast.If) and leaves(statement.body))


def _blocks(node: ast.AST) -> list[list[ast.AST]]:
    fields = (getattr(node, name, None) for name in ("body", "orelse", "finalbody"))
    return [block for block in fields if isinstance(block, list)]


#: An answer that contains one of these is more than an answer to an edge case.
_WORKS = (
    *(ast.Call, ast.BinOp, ast.Compare, ast.IfExp, ast.BoolOp, ast.If, ast.For, ast.While),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)


def condition_schemes(uses: HelperUses) -> set[str]:
    """Return the schemes that the conditions of a function show."""
    shown = {name for use in uses.nodes for name in (*_safety(uses, use), *_choice(uses, use))}
    replaced = _replaced(uses)
    return shown | {name for value in uses.values if id(value) not in replaced for name in _of_value(uses, value)}


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
            case ast.Match(subject=subject, cases=cases) if below in cases and not uses.is_about_value(subject):
                yield [statement for case in cases if case is not below for statement in case.body]
            case ast.Try(body=tried, handlers=handlers) if below in handlers:
                yield tried
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
    sides: list[Sequence[ast.AST]] = []
    match uses.parents[id(test)]:
        case ast.IfExp(body=body, orelse=other):
            sides = [[body], [other]]
        case ast.If(body=block, orelse=rest) as conditional:
            sides = [block, rest or (uses.after(conditional) if leaves(block) else [])]
    with_none, with_value = sides if nothing else sides[::-1]
    return with_none, with_value


def _replaced(uses: HelperUses) -> set[int]:
    """Return the ids of all nodes that stand where it was noticed that there is no value."""
    replaced = set()
    for value in uses.values:
        test = uses.condition(value)
        if test is not None and (nothing := _nothing(uses, test)) is not None:
            instead, _ = _sides_of(uses, test, nothing)
            replaced |= {id(inner) for node in instead for inner in ast.walk(node)}
    return replaced


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
            case ast.MatchSingleton(None) | ast.MatchSequence([]) | ast.MatchValue(ast.Constant("")):
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


#: Functions that apply their first argument until or where it holds.
_CHOOSES = frozenset({"filter", "filterfalse", "takewhile", "dropwhile"})
#: Functions that a function may be passed to without being applied to many items.
_HOLDS = frozenset({"partial", "callable", "isinstance", "print", "wraps", "cache", "lru_cache", "id"})


def repetition_schemes(uses: HelperUses) -> set[str]:
    """Return the schemes that the repetitions of a function show."""
    shown = {name for use in uses.nodes for name in _repeated(uses, use)}
    for node in uses.carriers():
        shown |= set(_repeated(uses, node))
        if _is_inside(uses, node, node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")):
            shown.add("coordinator")
    if _calls_twice(uses):
        shown.add("coordinator")
    return shown


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
        if isinstance(above, (ast.If, ast.IfExp)) and below is not above.test:
            sides.add((id(above), below is above.body or (isinstance(above, ast.If) and below in above.body)))
        sides |= {(id(statement), False) for statement in early_exits(above, below)}
    return sides


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
    values: list[ast.expr | None] = []
    if isinstance(node, ast.Lambda):
        values = [node.body]
    elif isinstance(node, ast.FunctionDef):
        values = [inner.value for inner in walk_own(node.body) if isinstance(inner, ast.Return)]
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
