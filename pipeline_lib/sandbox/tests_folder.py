"""The folder in which tests of files run.

Tests may remove or overwrite files whose names a program returns, and such a name may be any path.  So while they run,
every operation that would change a file outside of their folder raises ``PermissionError`` in this process.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

_CHANGES = frozenset(
    ["open", "sqlite3.connect", "shutil.rmtree", "tempfile.mkdtemp", "tempfile.mkstemp"]
    + [f"os.{name}" for name in ("chmod", "chown", "link", "mkdir", "remove", "rename", "rmdir", "symlink", "truncate")]
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_HARMLESS = ("", ":memory:", os.devnull)
_folders: list[str] = []


@contextmanager
def tests_folder() -> Iterator[None]:
    """Run the body in a new working directory, which is removed afterwards, and forbid changes of files outside.

    Temporary files are created in it, too.
    """
    _install_hook()
    before = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        with tempfile.TemporaryDirectory(prefix="symposium-tests-") as folder:
            os.chdir(folder)
            _folders.append(os.path.realpath(folder))
            usual, tempfile.tempdir = tempfile.tempdir, _folders[-1]
            try:
                yield
            finally:
                tempfile.tempdir = usual
                _folders.pop()
                os.fchdir(before)
    finally:
        os.close(before)


@lru_cache(maxsize=1)
def _install_hook() -> None:
    sys.addaudithook(_check_event)  # cannot be removed, so only judges of tests that use files have it


def _check_event(event: str, args: tuple[Any, ...]) -> None:
    if not _folders or event not in _CHANGES or (event == "open" and not args[2] & _WRITING):
        return
    for path in args[:2] if event in ("os.rename", "os.link", "os.symlink") else args[:1]:
        if isinstance(path, int) or path is None:
            continue
        text = os.fsdecode(path)
        if text not in _HARMLESS and not (os.path.realpath(text) + "/").startswith(_folders[-1] + "/"):
            raise PermissionError(f"tests may change files only in their own folder, not {text[:100]!r}")
