"""The relevant content of a Python source file: the digest of its syntax tree, and the imports that run with it.

Comments, docstrings and formatting do not count.  Imports inside functions are found, and calls of ``import_module``
with a literal name; imports for type checking are not.  Parsing takes most of the time, so results are stored by the
content of the file, never by its name or times.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline_lib.storage import digest, write_json

_KEPT = 4000  # files; the project has some hundreds, and every edit makes one more


@dataclass(frozen=True, slots=True)
class Import:
    """One import statement (of ``import a, b``: one of them).

    Attributes:
        level: number of leading dots.
        module: what follows them, or the imported module; empty in ``from . import a``.
        names: what is imported from it; empty for a plain ``import``.
        method: where it stands, ``Class.method``, if that is a method of a class of the module.
    """

    level: int
    module: str
    names: tuple[str, ...]
    method: str = ""


@dataclass(frozen=True, slots=True)
class Syntax:
    """What one file says.

    Attributes:
        digest: of its syntax tree without docstrings (64 hexadecimal digits).
        imports: what it may import when it runs.
        methods: by ``Class.method``, the names by which it may call another: attributes of anything, and texts.
        calls: such names in the rest of the module, which may call any method too.
        lazy: whether it has a ``__getattr__`` of its own, by which a package finds modules when they are asked for.
    """

    digest: str
    imports: tuple[Import, ...]
    methods: dict[str, tuple[str, ...]]
    lazy: bool = False
    calls: tuple[str, ...] = ()


def parse(content: bytes, name: str = "<unknown>") -> Syntax:
    """Return what a source file says.

    Args:
        content: the file's bytes.
        name: for the message.

    Raises:
        SyntaxError: it is no Python.
    """
    tree = ast.parse(content, filename=name)
    found: list[Import] = []
    methods: dict[str, tuple[str, ...]] = {}
    for owner in [node for node in tree.body if isinstance(node, ast.ClassDef)]:
        for item in owner.body:
            if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
                method = f"{owner.name}.{item.name}"
                found += [replace(one, method=method) for one in _imports(item)]
                methods[method] = tuple(sorted(_called(item)))
    rest = _without_methods(tree)
    found += _imports(rest)
    known = {method.rpartition(".")[2] for method in methods}
    calls = tuple(sorted(known & _called(rest, names=True)))
    methods = {method: tuple(name for name in names if name in known) for method, names in methods.items()}
    lazy = any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in tree.body)
    # Where somebody asks a class or a function for its docstring, docstrings are code; to give one is not to ask.
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    if not any(node.attr == "__doc__" and isinstance(node.ctx, ast.Load) for node in attributes):
        for node in ast.walk(tree):
            _drop_docstring(node)
    return Syntax(digest(ast.dump(tree)), tuple(dict.fromkeys(found)), methods, lazy, calls)


def _without_methods(tree: ast.Module) -> ast.Module:
    """Return the module with its classes, but without the methods of these."""
    body: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            body += [item for item in node.body if not isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
        else:
            body.append(node)
    return ast.Module(body=body, type_ignores=[])


def _called(tree: ast.AST, names: bool = False) -> set[str]:
    """Return the names by which methods may be called below ``tree``: of attributes, and texts, as for ``getattr``.

    Whose attribute it is nobody can tell from the text, so that of anything counts; in a class's own body
    (``names``) a bare name may be a method as well.
    """
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
        elif names and isinstance(node, ast.Name):
            found.add(node.id)
    return found


_FOR_TYPES = ("TYPE_CHECKING", "typing.TYPE_CHECKING")


class SyntaxMemory:
    """Remembers what files say.

    Args:
        file: a JSON file that outlives the process; without it only this object remembers.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        # Another Python writes other trees, and a change to this module may change the answer.
        self._how = hashlib.sha256(Path(__file__).read_bytes() + sys.version.encode()).hexdigest()
        self._known: dict[str, Syntax] = {}
        self._new = False
        if file is not None:
            try:
                stored = json.loads(file.read_text(encoding="utf-8"))
                if stored["how"] == self._how:
                    self._known = {key: _from_json(value) for key, value in stored["files"].items()}
            except (OSError, ValueError, TypeError, KeyError, AttributeError):
                self._known = {}

    def of(self, path: Path) -> Syntax:
        """Return what a file says now.

        Raises:
            SyntaxError: it is no Python.
        """
        content = path.read_bytes()
        key = hashlib.sha256(content).hexdigest()
        if key not in self._known:
            self._known[key] = parse(content, str(path))
            self._new = True
        return self._known[key]

    def keep(self) -> None:
        """Write what was learnt since the last call; two processes at once lose an answer, never a right one."""
        if self._file is not None and self._new:
            files = {key: _to_json(value) for key, value in list(self._known.items())[-_KEPT:]}
            write_json(self._file, {"how": self._how, "files": files})
            self._new = False


def _to_json(syntax: Syntax) -> list[object]:
    imports = [[found.level, found.module, list(found.names), found.method] for found in syntax.imports]
    methods = {name: list(used) for name, used in syntax.methods.items()}
    return [syntax.digest, imports, methods, syntax.lazy, list(syntax.calls)]


def _from_json(value: list[object]) -> Syntax:
    own, imports, methods, lazy, calls = value
    if not (
        isinstance(own, str) and isinstance(imports, list) and isinstance(methods, dict) and isinstance(calls, list)
    ):
        raise TypeError("a digest, a list of imports and the methods were written")
    found = tuple(Import(level, module, tuple(names), method) for level, module, names, method in imports)
    return Syntax(own, found, {name: tuple(used) for name, used in methods.items()}, bool(lazy), tuple(calls))


def _imports(tree: ast.AST) -> Iterator[Import]:
    """Yield every import below ``tree`` that may run."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (Import(0, alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield Import(node.level, node.module or "", tuple(alias.name for alias in node.names))
        elif isinstance(node, ast.If) and ast.unparse(node.test) in _FOR_TYPES:
            yield from _imports(ast.Module(body=node.orelse, type_ignores=[]))
        else:
            if isinstance(node, ast.Call) and (named := _named_in(node)):
                yield named
            yield from _imports(node)


def _named_in(call: ast.Call) -> Import | None:
    """Return the import that ``importlib.import_module("a.b")`` or ``__import__("a.b")`` is, if its text is written."""
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    named = [keyword.value for keyword in call.keywords if keyword.arg == "name"]
    first = next(iter((*call.args, *named)), None)
    if called not in ("import_module", "__import__") or not isinstance(first, ast.Constant):
        return None
    if not isinstance(first.value, str):
        return None
    module = first.value.lstrip(".")
    return Import(len(first.value) - len(module), module, ())


def _drop_docstring(node: ast.AST) -> None:
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or not node.body:
        return
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        del node.body[0]
