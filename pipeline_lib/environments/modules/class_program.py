"""Join the methods that agents wrote into one class.

The prelude of the problem is the class's frame: imports, and the class with its constructor.  A part's text is methods,
with or without a class around them and however far they are indented.  A part adds the methods that are its own and
helpers; methods of other parts and of the frame are left out of it, also if it assigns them.  Other statements go above
the class.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Members:
    """What a text adds to a class.

    Attributes:
        inside: statements of the class, in their order.
        above: statements of the module.
    """

    inside: tuple[ast.stmt, ...]
    above: tuple[ast.stmt, ...]

    @property
    def methods(self) -> set[str]:
        """Return the names of the methods."""
        return {node.name for node in self.inside if isinstance(node, _FUNCTIONS)}


@lru_cache(maxsize=4096)
def members(text: str, name: str) -> Members | None:
    """Return what a text adds to the class ``name``; None if it does not parse."""
    tree = _parse(text)
    if tree is None:
        return None
    inside: list[ast.stmt] = []
    above: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            inside += node.body
        else:
            (inside if isinstance(node, _FUNCTIONS) else above).append(node)
    return Members(tuple(inside), tuple(above))


def class_program(frame: str, name: str, sources: Mapping[str, str], owned: Mapping[str, tuple[str, ...]]) -> str:
    """Return the joined class; a part that does not parse adds nothing.

    Args:
        frame: source with the class's constructor.
        name: of the class.
        sources: text of each part.
        owned: names of the methods of each part.
    """
    tree = ast.parse(frame)
    (whole,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    given = {node.name for node in whole.body if isinstance(node, _FUNCTIONS)}
    above: list[ast.stmt] = []
    body = list(whole.body)
    for part, text in sources.items():
        found = members(text, name)
        if found is None:
            continue
        above += found.above
        others = given.union(*(methods for other, methods in owned.items() if other != part))
        body += [node for node in found.inside if not bound(node) & others and not _is_docstring(node)]
    made = ast.ClassDef(whole.name, whole.bases, whole.keywords, body, whole.decorator_list)
    module = ast.Module([*(node for node in tree.body if node is not whole), *above, made], [])
    return ast.unparse(ast.fix_missing_locations(_future_first(module)))


def _parse(text: str) -> ast.Module | None:
    for form in (text, textwrap.dedent(text), f"class _:\n{text}", f"class _:\n{textwrap.indent(text, ' ')}"):
        try:
            tree = ast.parse(form)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        match tree.body:
            case [ast.ClassDef(name="_", body=body)]:
                return ast.Module(body, [])
        return tree
    return None


def bound(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds; nothing of what is nested in it."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            found = (node for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))
            return {node.id for node in found if isinstance(node.ctx, ast.Store)}  # not the run of table[run] = 1
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
            return {name}
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {alias.asname or alias.name.partition(".")[0] for alias in names}
    return set()


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _future_first(module: ast.Module) -> ast.Module:
    """Return the module with imports from ``__future__`` first, as Python demands."""
    first = [node for node in module.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    return ast.Module([*first, *(node for node in module.body if node not in first)], [])
