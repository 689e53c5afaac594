"""The relevant content of a Python source file: the digest of its syntax tree, and its imports.

Comments, docstrings and formatting do not count.  Imports inside functions are found; imports for type checking are
left out.  In a file that can import by name (``import_module`` or the like, under whatever name), every literal string
that can be the name of a module counts as an import.  Parsing takes most of the time, so results are cached by the
content of the file, never by its name or times.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline_lib.storage import digest, write_json

_KEPT = 4000  # files; the project has some hundreds, and every edit adds one


@dataclass(frozen=True, slots=True)
class Import:
    """One import statement (for ``import a, b``: one of the two).

    Attributes:
        level: number of leading dots.
        module: the imported module without leading dots; empty in ``from . import a``.
        names: the names imported from it; empty for a plain ``import``.
        method: the method that contains the statement, ``Class.method``; empty if it is not in a method.
    """

    level: int
    module: str
    names: tuple[str, ...]
    method: str = ""


@dataclass(frozen=True, slots=True)
class Syntax:
    """The content of one file.

    Attributes:
        digest: of its syntax tree without docstrings (64 hexadecimal digits).
        imports: all imports that may run.
        methods: by ``Class.method``, the names of methods that it may call: names of attributes, and literal strings.
        calls: such names in the rest of the module, which may call methods as well.
        reads_source: whether it may read docstrings, or source files as text, so that their text is more than comments.
        lazy: whether it defines ``__getattr__``, with which a package imports modules on first use.
    """

    digest: str
    imports: tuple[Import, ...]
    methods: dict[str, tuple[str, ...]]
    lazy: bool = False
    calls: tuple[str, ...] = ()
    reads_source: bool = False


#: Words of a file that can import a module by its name.
_BY_NAME = {"import_module", "__import__", "importlib", "runpy", "run_module", "pkgutil", "resolve_name", "find_spec"}
_NAME = re.compile(r"(?P<dots>\.*)(?P<name>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)", re.ASCII)

#: Words of a file that can read docstrings or source files, besides file names that end in ``.py``.
_READING = {"__doc__", "getdoc", "getsource", "getsourcelines", "getsourcefile", "getcomments", "get_source"}
_READS_ITSELF = re.compile(rb"open\(__file__|Path\(__file__\)(\.\w+\(\))*\.(open|read_)")


def parse(content: bytes, name: str = "<unknown>") -> Syntax:
    """Parse a source file.

    Args:
        content: the file's bytes.
        name: its name, for messages.

    Raises:
        SyntaxError: it is not valid Python.
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
    if _words(tree) & _BY_NAME:
        found += _possible_modules(tree)
    known = {method.rpartition(".")[2] for method in methods}
    calls = tuple(sorted(known & _called(rest, names=True)))
    methods = {method: tuple(name for name in names if name in known) for method, names in methods.items()}
    lazy = any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in tree.body)
    # If the module reads ``__doc__`` anywhere, its docstrings may change results.  Assignments to it do not count.
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    if not any(node.attr == "__doc__" and isinstance(node.ctx, ast.Load) for node in attributes):
        for node in ast.walk(tree):
            _drop_docstring(node)
    words = _words(tree)
    reads_source = bool(words & _READING or _READS_ITSELF.search(content)) or any(w.endswith(".py") for w in words)
    return Syntax(digest(ast.dump(tree)), tuple(dict.fromkeys(found)), methods, lazy, calls, reads_source)


def _words(tree: ast.AST) -> set[str]:
    """Return all names, attributes, imported names and literal strings below ``tree``."""
    found = _called(tree, names=True)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.name.partition(".")[0] for alias in node.names}
            found.add(getattr(node, "module", None) or "")
    return found


def _possible_modules(tree: ast.AST) -> Iterator[Import]:
    """Yield every literal string that can be the name of a module, relative ones included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (found := _NAME.fullmatch(node.value)):
            yield Import(len(found["dots"]), found["name"], ())


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
    """Return all names below ``tree`` that may be calls of methods: attributes, and literal strings as for ``getattr``.

    The source does not show the type of an object, so attributes of all objects count.  In the body of a class
    (``names``), a bare name may be a method as well.
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


class SyntaxCache:
    """A cache of parsed files.

    Args:
        file: JSON file for the cache; None keeps it in memory only.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        # Syntax trees depend on the version of Python, and results on this module.
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
        """Parse a file, or return the cached result for its content.

        Raises:
            SyntaxError: it is not valid Python.
        """
        content = path.read_bytes()
        key = hashlib.sha256(content).hexdigest()
        if key not in self._known:
            self._known[key] = parse(content, str(path))
            self._new = True
        return self._known[key]

    def keep(self) -> None:
        """Write new results to the file; of two processes that write at once, one loses results, which is harmless."""
        if self._file is not None and self._new:
            files = {key: _to_json(value) for key, value in list(self._known.items())[-_KEPT:]}
            write_json(self._file, {"how": self._how, "files": files})
            self._new = False


def _to_json(syntax: Syntax) -> list[object]:
    imports = [[found.level, found.module, list(found.names), found.method] for found in syntax.imports]
    methods = {name: list(used) for name, used in syntax.methods.items()}
    return [syntax.digest, imports, methods, syntax.lazy, list(syntax.calls), syntax.reads_source]


def _from_json(value: list[object]) -> Syntax:
    own, imports, methods, lazy, calls, reads_source = value
    if not (
        isinstance(own, str) and isinstance(imports, list) and isinstance(methods, dict) and isinstance(calls, list)
    ):
        raise TypeError("a digest, a list of imports and the methods were written")
    found = tuple(Import(level, module, tuple(names), method) for level, module, names, method in imports)
    used_by = {name: tuple(used) for name, used in methods.items()}
    return Syntax(own, found, used_by, bool(lazy), tuple(calls), bool(reads_source))


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
            yield from _imports(node)


def _drop_docstring(node: ast.AST) -> None:
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or not node.body:
        return
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        del node.body[0]
