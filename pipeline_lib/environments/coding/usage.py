"""Whether the main function calls the helper, and what it does with the value, read from the syntax tree.

Comments and strings are not part of the tree and do not count.  A parameter that is named ``aux`` is not the helper; a
helper under another name (``f = aux``) is.  The tree cannot show whether the helper's value matters for passing the
tests; `pipeline_lib.environments.coding.runtime` measures this by ablation.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from pipeline_lib.environments.coding.scopes import Function, bindings, module_references, walk_own

#: Where a function can stand without being called or handed on: it is named, compared or tested.
_ONLY_LOOKED_AT = (
    *(ast.Expr, ast.Attribute, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Assert, ast.FormattedValue),
    ast.arguments,  # a default: the parameter becomes an alias
)


def definitions(body: Iterable[ast.stmt]) -> dict[str, ast.AST]:
    """Return what each module-level name stands for: a definition, an import, or the expression assigned last."""
    found: dict[str, ast.AST] = {}
    for node in walk_own(body):
        match node:
            case ast.Assign() | ast.AnnAssign():
                found.update({name.id: value for name, value in assignments(node)})
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Import() | ast.ImportFrom():
                found.update({name: node for name, _ in bindings([node])})
    return found


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
        while True:
            found = {n for n, node in self._meaning.items() if isinstance(node, ast.Name) and node.id in self.aliases}
            if found <= self.aliases:
                break
            self.aliases |= found
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
        """Return all module-level names that have a meaning, the helper's left out."""
        return list(self._meaning)

    def resolve(self, name: str) -> str:
        """Follow module-level aliases (``main = solve``) to the name they end at."""
        seen = set()
        while isinstance(node := self._meaning.get(name), ast.Name) and name not in seen:
            seen.add(name)
            name = node.id
        return name

    def reachable(self, entry_point: str) -> list[MainFunction]:
        """Return the functions that the entry point leads to, itself included."""
        found: dict[str, MainFunction] = {}
        todo = [self.resolve(entry_point)]
        while todo:
            name = todo.pop()
            function = self.function(name)
            if function is not None and name not in found:
                found[name] = function
                todo += [self.resolve(other) for other in function.reads()]
        return [found[name] for name in sorted(found)]

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
        while True:
            found = {n for n, values in self.assigned.items() if any(self.is_helper(value) for value in values)}
            if found <= self._aliases:
                break
            self._aliases |= found

    def reads(self) -> set[str]:
        """Return the module-level names that the function uses."""
        return {n.id for n in self.nodes if isinstance(n, ast.Name) and id(n) in self.module.own}

    def is_helper(self, node: ast.AST) -> bool:
        """Return whether a node is a name that means the helper."""
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
        complete = isinstance(parent, ast.AnnAssign) or (
            isinstance(parent, ast.Assign) and all(isinstance(target, ast.Name) for target in parent.targets)
        )
        if not names or not complete:
            return False
        read = {n.id for n in self.nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        shared = {name for n in self.nodes if isinstance(n, (ast.Global, ast.Nonlocal)) for name in n.names}
        return not names & (read | shared)


def _defaults(node: ast.AST) -> list[tuple[str, ast.expr]]:
    """Return the parameters that have a default, each with it."""
    if not isinstance(node, ast.arguments):
        return []
    positional = [*node.posonlyargs, *node.args]
    pairs = list(zip(positional[len(positional) - len(node.defaults) :], node.defaults, strict=True))
    pairs += [(arg, value) for arg, value in zip(node.kwonlyargs, node.kw_defaults, strict=True) if value is not None]
    return [(parameter.arg, value) for parameter, value in pairs]
