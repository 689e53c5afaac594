"""Names that tests may use without importing them, because the program imports them.

If tests run in the namespace of the program, as usual in benchmarks, they can use its imports and classes.  Here the
tests get the real module of this process under its own name, never an object that the program chose.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

_ALIASES = {"np": "numpy", "pd": "pandas"}
# Modules with an effect at import, or with a meaning for the code that runs tests.
_REFUSED = (
    *("antigravity", "ctypes", "idlelib", "lib2to3", "test", "this", "tkinter", "turtle", "turtledemo"),
    "unittest",
)
_UNTRUSTED = ("unittest", "test", "ctypes")  # their exceptions and classes have a meaning for the code that runs tests
_COMMON = (
    *("collections", "copy", "datetime", "decimal", "fractions", "functools", "heapq", "itertools", "json", "math"),
    *("operator", "random", "re", "statistics", "string", "time", "typing"),
)


def imported(code: str, names: frozenset[str], packages: Sequence[str]) -> dict[str, Any]:
    """Return those of ``names`` that the program imports at its top level; a well-known name only as what it is.

    Args:
        code: the program.
        names: free names of the tests.
        packages: modules that programs may import besides the standard library.
    """
    found: dict[str, Any] = {}
    for node in _top_imports(code) if names else ():
        for alias in node.names:
            path = alias.name if alias.asname or isinstance(node, ast.ImportFrom) else alias.name.partition(".")[0]
            name = alias.asname or path
            if name not in names or name in found or (is_well_known(name) and path != _ALIASES.get(name, name)):
                continue
            if isinstance(node, ast.Import):
                found[name] = _module(alias.name, packages) and _module(path, packages)
            elif not node.level and node.module:
                found[name] = _part(node.module, path, packages)
    return {name: value for name, value in found.items() if value is not None}


@lru_cache(maxsize=4096)
def is_well_known(name: str) -> bool:
    """Return whether a name is that of a module, or of an object in a common one; no program may replace it.

    A capital letter is not: it is more often a class of the program than a flag of `re`.
    """
    if len(name) == 1 and name.isupper():
        return False
    return (
        name in sys.stdlib_module_names
        or name in _ALIASES
        or name in _ALIASES.values()
        or any(hasattr(importlib.import_module(module), name) for module in _COMMON)
    )


def _top_imports(code: str) -> list[ast.Import | ast.ImportFrom]:
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]


def _module(path: str, packages: Sequence[str]) -> Any:
    top = path.partition(".")[0]
    if top in _REFUSED or (top not in sys.stdlib_module_names and top not in packages):
        return None
    try:
        return importlib.import_module(path)
    except ImportError:
        return None


def _part(path: str, name: str, packages: Sequence[str]) -> Any:
    home = _module(path, packages)
    return None if home is None else getattr(home, name, None) or _module(f"{path}.{name}", packages)


def find(module: Any, path: Any) -> Any:
    """Return the object at a dotted path in a module of the standard library or numpy; None if it is not loaded."""
    if type(module) is not str or type(path) is not str or path.count(".") > 3:
        return None
    top = module.partition(".")[0]
    if (top not in sys.stdlib_module_names and top != "numpy") or top in _UNTRUSTED:
        return None
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    return found
