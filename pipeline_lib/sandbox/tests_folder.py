"""The folder in which tests of files run.

Tests may remove or overwrite files that a program names, and the name may lead anywhere.  So while they run, every
operation that would change a file outside of their folder raises ``PermissionError`` in this process.
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
_NOWHERE = ("", ":memory:", os.devnull)
_folders: list[str] = []


@contextmanager
def tests_folder() -> Iterator[None]:
    """Run what is inside in a new folder, which is removed afterwards, and let it change no file outside.

    Temporary files are made in it, too.
    """
    _watch()
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
def _watch() -> None:
    sys.addaudithook(_look)  # for good, so it is added only where tests have to do with files


def _look(event: str, args: tuple[Any, ...]) -> None:
    if not _folders or event not in _CHANGES or (event == "open" and not args[2] & _WRITING):
        return
    for path in args[:2] if event in ("os.rename", "os.link", "os.symlink") else args[:1]:
        if isinstance(path, int) or path is None:
            continue
        text = os.fsdecode(path)
        if text not in _NOWHERE and not (os.path.realpath(text) + "/").startswith(_folders[-1] + "/"):
            raise PermissionError(f"tests may change files in their own folder alone, not {text[:100]!r}")
