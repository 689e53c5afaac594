"""Static analysis of the tests' source: `unittest` classes, free names, and use of files."""

from __future__ import annotations

import ast
import builtins

_CASES = ("TestCase", "IsolatedAsyncioTestCase")
_FILES = frozenset({"open", "os", "sqlite3", "pathlib", "shutil", "tempfile", "zipfile", "glob", "io"})
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def find_methods(tree: ast.Module) -> tuple[tuple[str, str], ...]:
    """Return class and name of every test method of the module's ``unittest`` classes, inherited ones included.

    Methods and classes decorated with ``unittest.skip`` are left out.
    """
    found: dict[str, dict[str, bool]] = {}
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        above = [_last_name(base) for base in node.bases]
        if not any(name in _CASES or name in found for name in above):
            continue
        methods: dict[str, bool] = {}
        for name in reversed(above):
            methods |= found.get(name, {})
        for part in node.body:
            if isinstance(part, _FUNCTIONS) and part.name.startswith("test"):
                methods[part.name] = not _skipped(part)
        found[node.name] = {name: runs and not _skipped(node) for name, runs in methods.items()}
    return tuple((kind, name) for kind, methods in found.items() for name, runs in methods.items() if runs)


def free_names(tree: ast.Module) -> frozenset[str]:
    """Return the names that the module reads and binds in no scope, without builtins."""
    read: set[str] = set()
    bound = set(vars(builtins)) | {"__file__"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, _FUNCTIONS | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            bound.add(node.name)
    return frozenset(read - bound)


def touches_files(tree: ast.Module) -> bool:
    """Return whether the module names ``open`` or a module for files."""
    return any(
        (isinstance(node, ast.Name) and node.id in _FILES)
        or (isinstance(node, ast.alias) and node.name.partition(".")[0] in _FILES)
        for node in ast.walk(tree)
    )


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _skipped(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    return any(isinstance(mark, ast.Call) and _last_name(mark.func) == "skip" for mark in node.decorator_list)
