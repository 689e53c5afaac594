"""Where a function uses the helper and its values, and which statements and conditions stand around each place."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from pipeline_lib.environments.coding.usage import MainFunction

CONDITIONALS = (ast.If, ast.IfExp)


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
        self.values = [
            node
            for node in function.nodes
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in self._names
        ]

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
            if isinstance(above, CONDITIONALS) and above.test is below:
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
    """Return the lists of statements that belong to a node."""
    fields = (getattr(node, name, None) for name in ("body", "orelse", "finalbody"))
    return [block for block in fields if isinstance(block, list)]
