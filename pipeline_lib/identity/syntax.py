"""The relevant content of a Python source file: the digest of its syntax tree, and its imports.

Comments, docstrings and formatting do not count.  Imports inside functions are found; imports for type checking are
left out.  In a file that can import by name (``import_module`` or the like, under whatever name), every literal string
that can be the name of a module counts as an import.  Parsing takes most of the time, so results are cached by the
content of the file, never by its name or times.
"""

import ast
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline_lib.storage import digest, write_json

_KEPT = 4000  # files; the project has some hundreds, and every edit adds one


@dataclass(frozen=True, slots=True)
class Syntax:
    """The content of one file."""

    digest: str  #: of its syntax tree without docstrings (64 hexadecimal digits)
    #: Every dotted name that an import which may run can load, relative ones with leading dots; of ``from a import b``
    #: both ``a`` and ``a.b``, since ``b`` may be a module; ``a.*`` is all of ``a``.
    imports: tuple[str, ...]
    lazy: bool = False  #: whether it defines ``__getattr__``, with which a package imports modules on first use
    #: Whether it may read docstrings, or source files as text, so that their text is more than comments.
    reads_source: bool = False
    named: tuple[str, ...] = ()  #: literal strings that may be names of modules, if it can import by name


#: Words of a file that can import a module by its name.
_BY_NAME = {"import_module", "__import__", "importlib", "runpy", "run_module", "pkgutil", "resolve_name", "find_spec"}
_NAME = re.compile(r"(\.*[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?::[A-Za-z_][\w.]*)?", re.ASCII)

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
    nodes = _nodes(tree)
    words = _words(nodes)
    named = [found[1] for text in _texts(nodes) if (found := _NAME.fullmatch(text))] if words & _BY_NAME else []
    lazy = any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in tree.body)
    reads_source = bool(words & _READING or _READS_ITSELF.search(content)) or any(w.endswith(".py") for w in words)
    # If the module reads ``__doc__`` anywhere, its docstrings may change results.  Assignments to it do not count.
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    if not any(node.attr == "__doc__" and isinstance(node.ctx, ast.Load) for node in attributes):
        for node in nodes:
            _drop_docstring(node)
    imports = tuple(dict.fromkeys(_imports(tree)))
    return Syntax(digest(ast.dump(tree)), imports, lazy, reads_source, tuple(dict.fromkeys(named)))


def _nodes(tree: ast.AST) -> list[ast.AST]:
    """Return all nodes as `ast.walk` yields them, in a third of its time: a first chain parses some hundred files."""
    nodes = [tree]
    for node in nodes:
        for value in node.__dict__.values():
            if isinstance(value, list):
                nodes.extend(item for item in value if isinstance(item, ast.AST))
            elif isinstance(value, ast.AST):
                nodes.append(value)
    return nodes


def _imports(tree: ast.AST) -> Iterator[str]:
    """Yield what every import below ``tree`` that may run can load."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield module
            yield from (f"{module}{'.' if node.module else ''}{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and _is_for_types(node.test):
            yield from _imports(ast.Module(body=node.orelse, type_ignores=[]))
        elif not isinstance(node, ast.expr):  # which holds no statement
            yield from _imports(node)


def _is_for_types(test: ast.expr) -> bool:
    match test:
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(value=ast.Name(id="typing"), attr="TYPE_CHECKING"):
            return True
    return False


def file_names(path: Path) -> set[str]:
    """Return the literal strings in a source file that may be paths of files or folders, none of them hidden.

    One that begins with a slash may also be the end of a path (``f"{folder}/table.json"``), and is returned so, too.

    Raises:
        SyntaxError: it is not valid Python.
    """
    texts = set(_texts(_nodes(ast.parse(path.read_bytes(), filename=str(path)))))
    plausible = {text for text in texts if 0 < len(text) <= 200 and text.isprintable() and text.strip("/")}
    plausible |= {text.strip("/") for text in plausible}
    return {text for text in plausible if not any(_hides(part) for part in text.split("/"))}


def _hides(part: str) -> bool:
    return part.startswith(".") and part not in (".", "..")


def _texts(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _words(nodes: Iterable[ast.AST]) -> set[str]:
    """Return all names, attributes, imported names and literal strings of ``nodes``."""
    words: set[str] = set()
    for node in nodes:
        match node:
            case ast.Attribute(attr=word) | ast.Constant(value=str(word)) | ast.Name(id=word):
                words.add(word)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                words |= {alias.name.partition(".")[0] for alias in names}
                words.add(getattr(node, "module", None) or "")
    return words


def _drop_docstring(node: ast.AST) -> None:
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or not node.body:
        return
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        del node.body[0]


_PARSED: dict[str, Syntax] = {}
"""What this process has parsed, by SHA-256 of the content, for all of its caches."""


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
                    self._known = {key: _from_json(**value) for key, value in stored["files"].items()}
            except (OSError, ValueError, TypeError, KeyError, AttributeError):
                self._known = {}

    def of(self, path: Path) -> Syntax:
        """Parse a file, or return the cached result for its content; raises SyntaxError if it is not valid Python."""
        content = path.read_bytes()
        key = hashlib.sha256(content).hexdigest()
        if key not in self._known:
            self._known[key] = _PARSED[key] = _PARSED.get(key) or parse(content, str(path))
            self._new = True
        return self._known[key]

    def keep(self) -> None:
        """Write new results to the file; of two processes that write at once, one loses results, which is harmless."""
        if self._file is not None and self._new:
            files = {key: asdict(value) for key, value in list(self._known.items())[-_KEPT:]}
            write_json(self._file, {"how": self._how, "files": files})
            self._new = False


def _from_json(digest: str, imports: list[str], lazy: bool, reads_source: bool, named: list[str]) -> Syntax:
    if not isinstance(digest, str) or not isinstance(imports, list) or not isinstance(named, list):
        raise TypeError("a digest and lists of names were written")
    return Syntax(digest, tuple(imports), bool(lazy), bool(reads_source), tuple(named))
