"""Which version of the code computed a value.

`code_digest` covers the given modules and every module of the same package that they import, directly or not, so a
changed helper in another file counts.  Comments, docstrings and formatting do not count: the digest is taken over
syntax trees.  It does not see imports made from text (``importlib.import_module(name)``); modules reached only that
way must be named.  Versions of Python and of the numeric libraries count, because they change what is computed.
"""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from pipeline_lib.storage import digest

LIBRARIES = ("torch", "transformers", "tokenizers", "peft", "numpy", "scipy", "statsmodels")
"""Distributions whose version is part of every code digest."""


def code_digest(*modules: ModuleType) -> str:
    """Return the SHA-256 (64 hexadecimal digits) of the code that ``modules`` run.

    Raises:
        ValueError: no module was given, or a module has no source file.
    """
    if not modules:
        raise ValueError("code_digest needs at least one module: a value that no code computes cannot be cached")
    trees: dict[str, str] = {}
    waiting = [module.__name__ for module in modules]
    roots = {name.partition(".")[0] for name in waiting}
    while waiting:
        name = waiting.pop()
        if name in trees:
            continue
        path = _source(name)
        if path is None:
            raise ValueError(f"module {name} has no source file")
        trees[name], imported = _read(path, path.stat().st_mtime_ns, name)
        parents = [".".join(name.split(".")[:end]) for end in range(1, name.count(".") + 1)]
        for other in (*imported, *parents):
            if other.partition(".")[0] in roots and other not in trees and _source(other):
                waiting.append(other)
    return digest({"python": list(sys.version_info[:2]), "libraries": _versions(), "modules": trees})


@functools.lru_cache(maxsize=1024)
def _read(path: Path, modified_ns: int, name: str) -> tuple[str, tuple[str, ...]]:
    """Return a module's digest and the names it may import; ``modified_ns`` only makes a changed file a new entry."""
    tree = ast.parse(path.read_bytes(), filename=str(path))
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    names = tuple(sorted(set(_imports(tree, package))))
    for node in ast.walk(tree):
        _drop_docstring(node)
    return digest(ast.dump(tree)), names


def _imports(tree: ast.AST, package: str) -> Iterator[str]:
    """Yield every module name that the code below ``tree`` imports when it runs."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: package.count(".") + 2 - node.level]) if node.level else ""
            module = ".".join(part for part in (base, node.module or "") if part)
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)  # a name may be a module of its own
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _imports(ast.Module(body=node.orelse, type_ignores=[]), package)
        else:
            yield from _imports(node, package)


def _drop_docstring(node: ast.AST) -> None:
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or not node.body:
        return
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        del node.body[0]


def _source(name: str) -> Path | None:
    """Return the source file of a module below an imported package, found by path so that nothing is imported."""
    root, *rest = name.split(".")
    origin = getattr(sys.modules.get(root), "__file__", None)
    if origin is None:
        return None
    if not rest:
        return Path(origin)
    base = Path(origin).parent.joinpath(*rest)
    for path in (base / "__init__.py", base.with_suffix(".py")):
        if path.is_file():
            return path
    return None


@functools.cache
def _versions() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
