"""Join the methods that agents wrote into one class.

The prelude of the problem is the class's frame: imports, and the class with its constructor.  A part's text is methods,
with or without a class around them and however far they are indented.

In the joined program each part first runs alone, in a namespace of its own and with a class of its own.  Of what it has
bound in that class then, by whatever means, the class that the tests get takes the part's own methods and its helpers:
no name of another part or of the frame, and no special method that is not its own.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping
from functools import lru_cache

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_CELL = "__symposium_cell__"  # a method whose closure is the cell of `__class__` and `super()` in the class's methods

_JOIN = f'''\
def __symposium_join__(name, frame, fields, parts):
    home = globals()
    found = ()
    for source, own, foreign in parts:
        space = dict(home)
        try:
            exec(compile(source, "<program>", "exec", dont_inherit=True), space)
            bound = {{key: value for kind in space[name].__mro__[-2::-1] for key, value in vars(kind).items()}}
            found = *found, (space, bound, own, foreign)
        except BaseException:  # it adds nothing
            pass
    exec(compile(frame, "<program>", "exec", dont_inherit=True), home)
    made = home[name]
    given = {{*dir(made), *fields}}
    for space, bound, own, foreign in found:
        for key, value in bound.items():
            special = key[:2] == key[-2:] == "__"
            if key in own or not (special or key in foreign or key in given):
                setattr(made, key, value)
        space[name] = made
        cell = bound.get("{_CELL}")
        if cell is not None:
            cell.__closure__[0].cell_contents = made


'''


@lru_cache(maxsize=4096)
def methods_of(text: str, name: str) -> frozenset[str] | None:
    """Return the names of the methods that a text defines for the class ``name``; None if it does not parse."""
    tree = _parse(text)
    return (
        None if tree is None else frozenset(node.name for node in _inside(tree, name) if isinstance(node, _FUNCTIONS))
    )


def class_program(frame: str, name: str, sources: Mapping[str, str], owned: Mapping[str, tuple[str, ...]]) -> str:
    """Return the joined class; a part that does not parse, or raises an exception when it runs alone, adds nothing.

    Args:
        frame: source with the class's constructor.
        name: of the class.
        sources: text of each part.
        owned: names of the methods of each part.
    """
    tree = ast.parse(frame)
    (whole,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    attributes = (node for node in ast.walk(whole) if isinstance(node, ast.Attribute))
    fields = tuple(sorted({node.attr for node in attributes if _is_field(node)}))
    bound = {part: tuple(_mangled(method, name) for method in methods) for part, methods in owned.items()}
    parts = []
    for part, text in sources.items():
        found = _parse(text)
        if found is not None:
            foreign = tuple(method for other, methods in bound.items() if other != part for method in methods)
            parts.append((_alone(found, whole), bound[part], foreign))
    around = ast.unparse(ast.Module([node for node in tree.body if node is not whole], []))
    head = "\n".join(ast.unparse(node) for node in tree.body if isinstance(node, ast.ImportFrom) and _is_future(node))
    parts = [(f"{head}\n{source}", own, foreign) for source, own, foreign in parts]
    frame = f"{head}\n{ast.unparse(whole)}"
    call = f"__symposium_join__({name!r}, {frame!r}, {fields!r}, {tuple(parts)!r})\n"
    return f"{around}\n\n\n{_JOIN}{call}del __symposium_join__\n"


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


def _inside(tree: ast.Module, name: str) -> list[ast.stmt]:
    """Return the statements of the class in a part: those of the class that it writes, else its functions."""
    written = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    if written:
        return [statement for node in written for statement in node.body]
    return [node for node in tree.body if isinstance(node, _FUNCTIONS)]


def _alone(tree: ast.Module, whole: ast.ClassDef) -> str:
    """Return the program of one part alone: its statements, and the frame's class with its members."""
    inside = _inside(tree, whole.name)
    cell = ast.parse(f"def {_CELL}(self): return __class__").body
    made = ast.ClassDef(whole.name, whole.bases, whole.keywords, [*whole.body, *inside, *cell], whole.decorator_list)
    at = [number for number, node in enumerate(tree.body) if isinstance(node, ast.ClassDef) and node.name == whole.name]
    last = at[-1] if at else len(tree.body)
    body = [made if number == last else node for number, node in enumerate(tree.body) if number not in at[:-1]]
    if not at:
        body = [*(node for node in body if node not in inside), made]
    return ast.unparse(ast.fix_missing_locations(ast.Module(body, [])))


def _is_field(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _is_future(node: ast.ImportFrom) -> bool:
    return node.module == "__future__"


def _mangled(method: str, name: str) -> str:
    """Return the name under which a method is in its class, which differs for private ones such as ``__count``."""
    private = method.startswith("__") and not method.endswith("__")
    return f"_{name.lstrip('_')}{method}" if private and name.strip("_") else method
