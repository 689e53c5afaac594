"""Which names of a module's syntax tree refer to the module's own: Python's scoping rules, without running anything.

Promises: functions, lambdas, classes, comprehensions and ``global`` are followed, so a parameter named ``aux`` is
distinguished from the helper ``aux``.  It does not see what only execution would show (``globals()["aux"]``, ``exec``,
``from x import *``).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

FunctionDef = ast.FunctionDef | ast.AsyncFunctionDef
Function = FunctionDef | ast.Lambda
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def walk_own(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield ``nodes`` and all below them that belong to the same scope, in the order they are written.

    Definitions are yielded with their decorators, defaults and bases, their bodies are not; nor are the targets of
    comprehensions.
    """
    stack = list(nodes)[::-1]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(_children(node)))


def _children(node: ast.AST) -> list[ast.AST]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return [*node.decorator_list, *_defaults(node.args)]
        case ast.Lambda():
            return _defaults(node.args)
        case ast.ClassDef():
            return [*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)]
        case ast.comprehension():
            return [node.iter, *node.ifs]
        case _:
            return list(ast.iter_child_nodes(node))


def _defaults(arguments: ast.arguments) -> list[ast.AST]:
    return [*arguments.defaults, *(default for default in arguments.kw_defaults if default is not None)]


def import_name(alias: ast.alias) -> str:
    """Return the name that one part of an import statement binds (``os`` for ``import os.path``)."""
    return alias.asname or alias.name.partition(".")[0]


def parameters(function: Function) -> list[ast.arg]:
    """Return all parameters of a function, ``*args`` and ``**kwargs`` included."""
    given = function.args
    extra = [arg for arg in (given.vararg, given.kwarg) if arg is not None]
    return [*given.posonlyargs, *given.args, *given.kwonlyargs, *extra]


def body_of(function: Function) -> list[ast.AST]:
    """Return the statements of a function, or the one expression of a lambda."""
    return [function.body] if isinstance(function, ast.Lambda) else list(function.body)


def bindings(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    """Yield every name that ``nodes`` bind in their own scope, with the node that binds it."""
    for node in walk_own(nodes):
        match node:
            case ast.Name(ctx=ast.Store() | ast.Del()):
                yield node.id, node
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node
            case ast.Import() | ast.ImportFrom():
                yield from ((import_name(alias), node) for alias in node.names)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name, node
            case ast.MatchMapping(rest=str(name)):
                yield name, node


@dataclass(frozen=True, slots=True)
class _Scope:
    names: frozenset[str]
    globals: frozenset[str] = frozenset()
    is_class: bool = False

    @classmethod
    def of(cls, nodes: Sequence[ast.AST], arguments: Iterable[str] = (), is_class: bool = False) -> _Scope:
        declared = [node for node in walk_own(nodes) if isinstance(node, (ast.Global, ast.Nonlocal))]
        names = {name for name, _ in bindings(nodes)} | set(arguments)
        names -= {name for node in declared for name in node.names}
        outer = {name for node in declared if isinstance(node, ast.Global) for name in node.names}
        return cls(frozenset(names), frozenset(outer), is_class)


class _References(ast.NodeVisitor):
    """Collects the names that no enclosing function, class or comprehension binds."""

    def __init__(self) -> None:
        self.references: list[ast.Name] = []
        self._scopes: list[_Scope] = []

    def visit_Name(self, node: ast.Name) -> None:
        for depth, scope in enumerate(reversed(self._scopes)):
            if node.id in scope.globals:
                break
            # The body of a class is no enclosing scope for the functions in it.
            if node.id in scope.names and not (scope.is_class and depth > 0):
                return
        self.references.append(node)

    def visit_FunctionDef(self, node: Function) -> None:
        outer: list[ast.AST] = [*_children(node), *(arg.annotation for arg in parameters(node) if arg.annotation)]
        if not isinstance(node, ast.Lambda) and node.returns is not None:
            outer.append(node.returns)
        body = body_of(node)
        self._all(outer)
        self._within(_Scope.of(body, (arg.arg for arg in parameters(node))), body)

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._all(_children(node))
        self._within(_Scope.of(node.body, is_class=True), node.body)

    def generic_visit(self, node: ast.AST) -> None:
        if not isinstance(node, _COMPREHENSIONS):
            super().generic_visit(node)
            return
        first = node.generators[0]
        self.visit(first.iter)
        targets = [name.id for part in node.generators for name in ast.walk(part.target) if isinstance(name, ast.Name)]
        rest = [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.comprehension)]
        parts = [n for part in node.generators for n in (part.target, part.iter, *part.ifs) if n is not first.iter]
        self._within(_Scope(frozenset(targets)), [*parts, *rest])

    def _within(self, scope: _Scope, nodes: Iterable[ast.AST]) -> None:
        self._scopes.append(scope)
        self._all(nodes)
        self._scopes.pop()

    def _all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)


def module_references(nodes: Iterable[ast.AST]) -> list[ast.Name]:
    """Return every use of a name, in module-level ``nodes`` and all inside them, that means the module's own name."""
    visitor = _References()
    for node in nodes:
        visitor.visit(node)
    return visitor.references


def rename(statements: Sequence[ast.stmt], names: Mapping[str, str]) -> None:
    """Rename module-level names in place: where they are bound, and wherever they are used.

    Names bound by ``import a.b`` cannot be renamed and are left alone.
    """
    dotted = {
        import_name(alias)
        for node in walk_own(statements)
        if isinstance(node, ast.Import)
        for alias in node.names
        if "." in alias.name and alias.asname is None
    }
    names = {old: new for old, new in names.items() if old not in dotted}
    for reference in module_references(statements):
        reference.id = names.get(reference.id, reference.id)
    for name, node in list(bindings(statements)):
        if name not in names:
            continue
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.ExceptHandler() | ast.MatchAs():
                node.name = names[name]
            case ast.Import() | ast.ImportFrom():
                for alias in node.names:
                    if import_name(alias) == name:
                        alias.asname = names[name]
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Global):
                node.names = [names.get(name, name) for name in node.names]
