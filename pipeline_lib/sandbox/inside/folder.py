"""A folder of which tests and program have a copy each: messages carry the changes of one side to the other.

So tests of files work in every jail, and neither side ever opens a file that the other one created.

Promises: for any input, `Folder.apply` writes only below the folder, within its size, through no link, or raises
`BadValue`.
"""

from __future__ import annotations

import os
import stat
from typing import Any

from .plain import BROKEN, BadValue

MOST_ENTRIES = 256
_DEEPEST = 8
# Transient files of a SQLite database that is in use.
_TRANSIENT = ("-journal", "-wal", "-shm")


class Folder:
    """One side's copy: the current working directory.

    Args:
        most: total size of its files, bytes.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._known: dict[str, tuple[int, ...]] = {}

    def changes(self) -> list[Any]:
        """Return name, mode and content of what has changed since the last message; no content: it was removed."""
        now = dict(_entries("", 0))
        changed: list[Any] = [[name, 0, None] for name in self._known if name not in now]
        for name, facts in now.items():
            if self._known.get(name) != facts:
                changed.append([name, facts[0], "" if stat.S_ISDIR(facts[0]) else _read(name)])
        self._known = now
        return changed

    def apply(self, changed: Any) -> None:
        """Apply the other side's changes; raises `BadValue` for input that `changes` does not return."""
        try:
            for name, mode, content in changed:
                parts = name.split("/")
                if not all(part not in ("", ".", "..") and "\0" not in part for part in parts) or len(parts) > _DEEPEST:
                    raise BadValue("form", "not a name below the folder")
                if content is None:
                    _remove(name)
                elif stat.S_ISDIR(mode):
                    os.makedirs(name, exist_ok=True)
                else:
                    self._write(name, mode, _bytes(content))
            self._known = dict(_entries("", 0))
        except (*BROKEN, OSError) as error:
            raise BadValue("form", f"not a change of files: {type(error).__name__}") from None

    def _write(self, name: str, mode: int, content: bytes) -> None:
        known = dict(_entries("", 0))
        used = sum(facts[1] for other, facts in known.items() if other != name)
        if used + len(content) > self.most or len(known) >= MOST_ENTRIES:
            raise BadValue("size", "more files than allowed")
        if name in known:
            os.chmod(name, 0o600)
        # The same inode as before: a process may have a database open.
        number = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(number, "wb") as file:
            file.write(content)
        os.chmod(name, mode & 0o777)


def _entries(below: str, depth: int) -> Any:
    """Yield path and facts of every regular file and folder: mode, size, and what changes with the content."""
    with os.scandir(below or ".") as found:
        for count, entry in enumerate(found):
            facts = entry.stat(follow_symlinks=False)
            if count >= MOST_ENTRIES or depth >= _DEEPEST:
                raise BadValue("size", "more files than can be sent")
            path = below + entry.name
            if stat.S_ISDIR(facts.st_mode):
                yield path, (facts.st_mode, 0)
                yield from _entries(path + "/", depth + 1)
            elif stat.S_ISREG(facts.st_mode) and not entry.name.endswith(_TRANSIENT):
                yield path, (facts.st_mode, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino)


def _bytes(content: str) -> bytes:
    import binascii  # here, to keep the fork server small

    return binascii.a2b_base64(content.encode("ascii"))


def _read(name: str) -> str:
    import binascii

    with open(name, "rb") as file:
        return binascii.b2a_base64(file.read(), newline=False).decode("ascii")


def _remove(name: str) -> None:
    try:
        if stat.S_ISDIR(os.lstat(name).st_mode):
            for entry in os.listdir(name):
                _remove(name + "/" + entry)
            os.rmdir(name)
        else:
            os.unlink(name)
    except FileNotFoundError:
        pass
