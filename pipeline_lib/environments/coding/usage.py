"""What the main function does with its helper, read from the syntax tree: does it call it, does it add anything?

Comments and strings are not part of the tree and do not count.  A parameter that is named ``aux`` is not the helper; a
helper under another name (``f = aux``) is.  The tree cannot show whether the helper's value matters for passing the
tests; `pipeline_lib.environments.coding.runtime` measures this by ablation.

A *thin wrapper* only ever returns what the helper returns for the wrapper's own, unchanged arguments.  Temporaries,
intermediate functions, dead code and statements that change neither arguments nor value make no difference, so a dummy
statement does not hide a wrapper.  Preparing the arguments, guarding or transforming the value is a contribution.  The
published test compares the body with two fixed forms instead, and any further statement defeats it.
"""

from __future__ import annotations

import ast
import builtins
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from pipeline_lib.environments.coding.scopes import Function, bindings, body_of, module_references, parameters, walk_own

#: Where a function can stand without being called or handed on: it is named, compared or tested.
_ONLY_LOOKED_AT = (
    *(ast.Expr, ast.Attribute, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Assert, ast.FormattedValue),
    ast.arguments,  # a default: the parameter becomes an alias
)


def definitions(body: Iterable[ast.stmt]) -> dict[str, ast.AST]:
    """Return what each module-level name stands for: a definition, an import, or the expression assigned last."""
    meaning: dict[str, ast.AST] = {}
    for node in walk_own(body):
        match node:
            case ast.Assign() | ast.AnnAssign():
                meaning.update({name.id: value for name, value in assignments(node)})
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Import() | ast.ImportFrom():
                meaning.update({name: node for name, _ in bindings([node])})
    return meaning


def follow(meaning: Mapping[str, ast.AST], name: str) -> str:
    """Follow module-level aliases (``main = solve``) to the name they end at."""
    seen = set()
    while isinstance(node := meaning.get(name), ast.Name) and name not in seen:
        seen.add(name)
        name = node.id
    return name


def assignments(node: ast.AST) -> list[tuple[ast.Name, ast.expr]]:
    """Return the names that one assignment gives, each with its expression; what cannot be matched is left out."""
    match node:
        case ast.Assign(targets=targets, value=value):
            return [pair for target in targets for pair in _pairs(target, value)]
        case ast.AnnAssign(target=ast.Name() as target, value=ast.expr() as value):
            return [(target, value)]
        case ast.NamedExpr(target=target, value=value):
            return [(target, value)]
    return []


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.Name, ast.expr]]:
    if isinstance(target, ast.Name):
        return [(target, value)]
    both = (ast.Tuple, ast.List)
    if isinstance(target, both) and isinstance(value, both) and len(target.elts) == len(value.elts):
        return [pair for t, v in zip(target.elts, value.elts, strict=True) for pair in _pairs(t, v)]
    return []


class MainModule:
    """The statements of the code that calls the helper: its functions, and the names that refer to the helper.

    Attributes:
        aliases: module-level names that mean the helper, its own name included.
        own: ids of the `ast.Name` nodes that mean module-level names.
    """

    def __init__(self, body: Sequence[ast.stmt], helper: str) -> None:
        self._meaning = definitions(body)
        self._meaning.pop(helper, None)
        self.own = {id(name) for name in module_references(body)}
        self.aliases = {helper}
        names = {name: node.id for name, node in self._meaning.items() if isinstance(node, ast.Name)}
        while more := {name for name, other in names.items() if other in self.aliases} - self.aliases:
            self.aliases |= more
        self._functions: dict[str, MainFunction] = {}

    def function(self, name: str) -> MainFunction | None:
        """Return the module-level function, class or computed value of that name; the helper is none of them."""
        node = self._meaning.get(name)
        if name in self._functions or isinstance(node, ast.Name):  # `resolve` follows names
            return self._functions.get(name)
        if isinstance(node, (ast.ClassDef, ast.expr, Function)):
            self._functions[name] = MainFunction(node, self)
        return self._functions.get(name)

    def names(self) -> list[str]:
        return list(self._meaning)

    def resolve(self, name: str) -> str:
        """Return the name that a module-level name ends at (`follow`)."""
        return follow(self._meaning, name)

    def reachable(self, entry_point: str) -> list[MainFunction]:
        """Return the functions that the entry point leads to, itself included."""
        reached: dict[str, MainFunction] = {}
        todo = [self.resolve(entry_point)]
        while todo:
            name = todo.pop()
            function = self.function(name)
            if function is not None and name not in reached:
                reached[name] = function
                todo += map(self.resolve, function.reads())
        return [reached[name] for name in sorted(reached)]

    def uses_of_helper(self, entry_point: str) -> list[bool]:
        """Return one entry per place, reached from the entry point, where the helper is called or handed on.

        An entry is True where the value is used, and False where it is thrown away.
        """
        if self.resolve(entry_point) in self.aliases:
            return [True]
        return [used for function in self.reachable(entry_point) for used in function.uses_of_helper()]


class MainFunction:
    """One function that may call the helper; or a class, or an expression that gives a module-level name its value.

    Attributes:
        node: its syntax tree.
        nodes: all nodes of the tree, those of inner functions included.
        assigned: the expressions that each local name is given, by assignments and by defaults of parameters.
        parents: the node above each node, by the id of the lower one.
    """

    def __init__(self, node: Function | ast.ClassDef | ast.expr, module: MainModule) -> None:
        self.node, self.module = node, module
        self.nodes = list(ast.walk(node))
        self.assigned: dict[str, list[ast.expr]] = {}
        for inner in self.nodes:
            for name, value in [*((name.id, value) for name, value in assignments(inner)), *_defaults(inner)]:
                self.assigned.setdefault(name, []).append(value)
        self.parents = {id(child): inner for inner in self.nodes for child in ast.iter_child_nodes(inner)}
        self._aliases: set[str] = set()
        while more := {n for n, given in self.assigned.items() if any(map(self.is_helper, given))} - self._aliases:
            self._aliases |= more

    def reads(self) -> set[str]:
        return {n.id for n in self.nodes if isinstance(n, ast.Name) and id(n) in self.module.own}

    def is_helper(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
            return False
        return node.id in (self.module.aliases if id(node) in self.module.own else self._aliases)

    def uses_of_helper(self) -> Iterator[bool]:
        """Yield, for every place where the helper is called or handed on, whether the value is used."""
        renamed = {id(value) for values in self.assigned.values() for value in values}
        for node in self.nodes:
            if not self.is_helper(node) or id(node) in renamed:
                continue
            parent = self.parents.get(id(node))
            if isinstance(parent, ast.Call) and parent.func is node:
                yield not self._is_thrown_away(parent)
            elif isinstance(parent, (ast.If, ast.While, ast.IfExp)) and parent.test is node:
                continue
            elif not isinstance(parent, _ONLY_LOOKED_AT):
                yield True

    def _is_thrown_away(self, call: ast.Call) -> bool:
        """Return whether a call stands by itself, or is only given to names that nobody reads."""
        parent = self.parents.get(id(call))
        if parent is None:  # the whole value of a module-level name
            return False
        if isinstance(parent, ast.Expr):
            return True
        names = {name.id for name, value in assignments(parent) if value is call}
        targets = parent.targets if isinstance(parent, ast.Assign) else []
        if not names or isinstance(parent, ast.NamedExpr) or not all(isinstance(t, ast.Name) for t in targets):
            return False
        read = {n.id for n in self.nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        shared = {name for n in self.nodes if isinstance(n, (ast.Global, ast.Nonlocal)) for name in n.names}
        return not names & (read | shared)


def _defaults(node: ast.AST) -> list[tuple[str, ast.expr]]:
    if not isinstance(node, ast.arguments):
        return []
    positional = [*node.posonlyargs, *node.args]
    pairs = list(zip(positional[len(positional) - len(node.defaults) :], node.defaults, strict=True))
    pairs += [(arg, value) for arg, value in zip(node.kwonlyargs, node.kw_defaults, strict=True) if value is not None]
    return [(parameter.arg, value) for parameter, value in pairs]


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
        blocks = _reached_blocks(statement)
        if isinstance(statement, (ast.If, ast.While)) and isinstance(statement.test, ast.Constant):
            blocks = [statement.body if statement.test.value else statement.orelse]
        for block in blocks:
            yield from _live(block)
        if isinstance(statement, ast.If) and all(_always_leaves(block) for block in blocks):
            return


def _always_leaves(statements: Sequence[ast.stmt]) -> bool:
    return any(isinstance(statement, (ast.Return, ast.Raise)) for statement in statements)


def _reached_blocks(statement: ast.stmt) -> list[Sequence[ast.stmt]]:
    """Return the blocks of a compound statement; definitions have blocks of their own and count as none."""
    match statement:
        case ast.If() | ast.For() | ast.While() | ast.AsyncFor():
            return [statement.body, statement.orelse]
        case ast.With() | ast.AsyncWith():
            return [statement.body]
        case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=finalbody):
            return [body, *(handler.body for handler in handlers), orelse, finalbody]
        case ast.Match(cases=cases):
            return [case.body for case in cases]
    return []
