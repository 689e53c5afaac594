"""Static analysis of the tests' source: whether they use `unittest`, free names, and use of files."""

from __future__ import annotations

import ast
import builtins
import re

_UNITTEST = re.compile(r"unittest|TestCase|absltest|load_tests")
_FILES = frozenset({"open", "os", "sqlite3", "pathlib", "shutil", "tempfile", "zipfile", "glob", "io"})
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def may_be_unittest(tests: str, prelude: str) -> bool:
    """Return whether tests may hold ``unittest`` tests; only running them tells (`unittest_runs.find_tests`)."""
    return _UNITTEST.search(tests) is not None or _UNITTEST.search(prelude) is not None


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
