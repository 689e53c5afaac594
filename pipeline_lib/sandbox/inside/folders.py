"""Folders of programs and tests: how full they are, whether they were used, how they are emptied and copied.

`Folder` is a folder of which tests and program have a copy each: messages carry the changes of one side to the other,
and its working folder.  So tests of files work in every jail, and neither side ever opens a file that the other one
created.

Promises: `wipe` needs constant memory, stack and descriptors for a tree of any depth and width, or raises OSError.  For
any input, `Folder.apply` writes only below the folder, within its size, through no link, or raises `BadValue`.
"""

from __future__ import annotations

import binascii
import errno
import os
import stat
from contextlib import suppress
from itertools import islice
from typing import Any

from .values import BROKEN, BadValue

MOST_ENTRIES = 1024
_DEEPEST = 32


def facts(folder: str) -> tuple[int, ...]:
    """Return what changes as soon as anything is made, removed, changed or listed in the folder."""
    found = os.stat(folder)
    return found.st_mode, found.st_nlink, found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns


def has_room(folder: str, entries: int, megabytes: float) -> bool:
    """Return whether the folder's file system has room for so many entries and MiB."""
    left = os.statvfs(folder)
    enough = left.f_bavail * left.f_frsize >= megabytes * (1 << 20)
    return enough and (left.f_files == 0 or left.f_favail >= entries)


def content(folder: str) -> tuple[int, float]:
    """Return the number of entries and the MiB below ``folder``.

    If the folder is a file system of its own, its statistics are used, which include deleted files that are still open.
    Else counting stops at more than `MOST_ENTRIES` entries or more than 32 nested folders; the number is then greater
    than `MOST_ENTRIES`.
    """
    if os.path.ismount(folder):
        facts = os.statvfs(folder)
        if facts.f_files:
            return facts.f_files - facts.f_ffree - 1, (facts.f_blocks - facts.f_bfree) * facts.f_frsize / (1 << 20)
    count, size, pending = 0, 0, [(folder, 0)]
    while pending and count <= MOST_ENTRIES:
        path, depth = pending.pop()
        if depth > _DEEPEST:
            return MOST_ENTRIES + 1, size / (1 << 20)
        try:
            with os.scandir(path) as found:
                for entry in found:
                    count += 1
                    if entry.is_dir(follow_symlinks=False):
                        pending.append((entry.path, depth + 1))
                    else:
                        size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if count > MOST_ENTRIES:
                        break
        except PermissionError:
            return MOST_ENTRIES + 1, size / (1 << 20)  # an unreadable folder counts as too full
        except OSError:
            count += 1  # it was removed
    return count, size / (1 << 20)


def wipe(folder: str) -> None:
    """Remove everything below ``folder``.

    Folders are moved to the top before they are read, so paths stay short.
    """
    top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        lifted = 0
        while True:
            names = os.listdir(top)
            if not names:
                return
            for name in names:
                lifted = _remove(top, name, lifted)
    finally:
        os.close(top)


def restore(folder: str, mode: int) -> None:
    """Give a folder the mode that it had, and the present time: its owner may have set others."""
    if os.stat(folder).st_mode != mode:
        os.chmod(folder, stat.S_IMODE(mode))
    os.utime(folder)


def _remove(top: int, name: str, lifted: int) -> int:
    if not stat.S_ISDIR(os.lstat(name, dir_fd=top).st_mode):
        os.unlink(name, dir_fd=top)
        return lifted
    os.chmod(name, 0o700, dir_fd=top)
    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
    try:
        for entry in os.listdir(inner):
            if stat.S_ISDIR(os.lstat(entry, dir_fd=inner).st_mode):
                os.chmod(entry, 0o700, dir_fd=inner)  # moving a folder needs the right to write in it
                lifted = _lift(entry, inner, top, lifted)
            else:
                os.unlink(entry, dir_fd=inner)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=top)
    return lifted


def _lift(name: str, inner: int, top: int, lifted: int) -> int:
    """Move the folder ``name`` from ``inner`` to ``top`` under a number that is free there."""
    while True:
        lifted += 1
        try:
            os.rename(name, "lifted-" + str(lifted), src_dir_fd=inner, dst_dir_fd=top)
            return lifted
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTDIR, errno.ENOTEMPTY):
                raise


MOST_SENT = 256
_DEEPEST_SENT = 8
# Transient files of a SQLite database that is in use.
_TRANSIENT = ("-journal", "-wal", "-shm")


class Folder:
    """One side's copy.

    Args:
        top: its path.
        most: total size of its files, bytes.
    """

    def __init__(self, top: str, most: int) -> None:
        self.most = most
        self._top = top + "/"
        self._here = ""
        self._known: dict[str, tuple[int, ...]] = {}

    def changes(self) -> list[Any]:
        """Return the working folder, and name, mode and content of what has changed since the last message.

        The working folder is a path below the folder or an absolute one.  No content: it was removed.
        """
        try:
            with suppress(FileNotFoundError):  # it was removed
                self._here = (os.getcwd() + "/").removeprefix(self._top)
            now = dict(self._entries("", 0))
            changed: list[Any] = [self._here, *([name, 0, None] for name in self._known if name not in now)]
            for name, facts in now.items():
                if self._known.get(name) == facts:
                    continue
                try:
                    content = "" if stat.S_ISDIR(facts[0]) else _read(self._top + name)
                except PermissionError:
                    content = _read_as_owner(self._top + name, facts[0])
                    now[name] = _facts(os.lstat(self._top + name))
                changed.append([name, facts[0], content])
        except OSError as error:  # a thread removes files, or the folder cannot be read
            raise BadValue("form", f"files that cannot be sent: {type(error).__name__}") from None
        self._known = now
        return changed

    def apply(self, changed: Any) -> None:
        """Apply the other side's changes; raises `BadValue` for input that `changes` does not return."""
        mask = os.umask(0)
        try:
            here, *entries = changed
            for name, mode, content in entries:
                parts = name.split("/")
                if (
                    not all(part not in ("", ".", "..") and "\0" not in part for part in parts)
                    or len(parts) > _DEEPEST_SENT
                ):
                    raise BadValue("form", "not a name below the folder")
                above = [self._top + "/".join(parts[:depth]) for depth in range(1, len(parts))]
                if not all(_is_alike(path, stat.S_IFDIR) for path in above):
                    raise BadValue("form", "a file below what is no folder")
                if content is None or not _is_alike(self._top + name, mode):
                    _remove_tree(self._top + name)
                if content is not None and stat.S_ISDIR(mode):
                    os.makedirs(self._top + name, 0o755, exist_ok=True)
                elif content is not None:
                    self._write(name, mode, _bytes(content))
            self._known = dict(self._entries("", 0))
            if here != self._here:
                self._here = here
                with suppress(OSError):  # this side has no such folder, or may not enter it
                    os.chdir(os.path.join(self._top, here))
        except (*BROKEN, OSError) as error:
            raise BadValue("form", f"not a change of files: {type(error).__name__}") from None
        finally:
            os.umask(mask)

    def _write(self, name: str, mode: int, content: bytes) -> None:
        known, path = dict(self._entries("", 0)), self._top + name
        used = sum(facts[1] for other, facts in known.items() if other != name)
        if used + len(content) > self.most or len(known) >= MOST_SENT:
            raise BadValue("size", "more files than allowed")
        if name in known:
            os.chmod(path, 0o600)
        # The same inode as before: a process may have a database open.
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode & 0o777 | 0o600)
        with os.fdopen(number, "wb") as file:
            file.write(content)
        os.chmod(path, mode & 0o777)

    def _entries(self, below: str, depth: int) -> Any:
        """Yield path and facts of every regular file and folder: mode, size, and what changes with the content."""
        try:
            with os.scandir(self._top + below) as found:
                inside = [(entry.name, entry.stat(follow_symlinks=False)) for entry in islice(found, MOST_SENT + 1)]
        except PermissionError:
            return  # neither side can see what is in this folder
        if len(inside) > MOST_SENT or (inside and depth >= _DEEPEST_SENT):
            raise BadValue("size", "more files than can be sent")
        for name, facts in inside:
            if stat.S_ISDIR(facts.st_mode):
                yield below + name, (stat.S_IFDIR, 0)
                yield from self._entries(below + name + "/", depth + 1)
            elif stat.S_ISREG(facts.st_mode) and not name.endswith(_TRANSIENT):
                yield below + name, _facts(facts)


def _facts(found: os.stat_result) -> tuple[int, ...]:
    return found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def _is_alike(name: str, mode: int) -> bool:
    """Return whether there is nothing of that name, or a file or folder as ``mode`` says."""
    try:
        return stat.S_IFMT(os.lstat(name).st_mode) == stat.S_IFMT(mode)
    except FileNotFoundError:
        return True  # a folder above it is missing, too, if that was removed


def _bytes(content: str) -> bytes:
    return binascii.a2b_base64(content.encode("ascii"))


def _read(name: str) -> str:
    with open(name, "rb") as file:
        return binascii.b2a_base64(file.read(), newline=False).decode("ascii")


def _read_as_owner(name: str, mode: int) -> str:
    """Return the content of a file whose mode forbids its owner to read it; nothing where modes cannot be changed."""
    os.chmod(name, 0o600)
    try:
        return _read(name)
    except PermissionError:
        return ""
    finally:
        os.chmod(name, stat.S_IMODE(mode))


def _remove_tree(name: str) -> None:
    try:
        if stat.S_ISDIR(os.lstat(name).st_mode):
            for entry in os.listdir(name):
                _remove_tree(name + "/" + entry)
            os.rmdir(name)
        else:
            os.unlink(name)
    except FileNotFoundError:
        pass
