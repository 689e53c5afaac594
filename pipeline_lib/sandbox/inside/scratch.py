"""The scratch folder of programs: its usage, whether it was ever used, and how it is emptied.

Promises: `wipe` needs constant memory, stack and descriptors for a tree of any depth and width, or raises OSError.
"""

from __future__ import annotations

import errno
import os
import stat

MOST_ENTRIES = 1024
_DEEPEST = 32


def facts(folder: str) -> tuple[int, ...]:
    """Return what changes as soon as anything is made, removed, changed or listed in the folder."""
    found = os.stat(folder)
    return found.st_mode, found.st_nlink, found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns


def check_room(folder: str, megabytes: float) -> None:
    """Raise OSError if the folder's file system has less than this number of MiB left."""
    left = os.statvfs(folder)
    if left.f_bavail * left.f_frsize < megabytes * (1 << 20) or (left.f_files > 0 and left.f_favail < MOST_ENTRIES):
        raise OSError(errno.ENOSPC, f"{folder} is on a file system with less than {megabytes:g} MiB left")


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


def _remove(top: int, name: str, lifted: int) -> int:
    """Remove one entry of the top folder; the folders in it are moved to the top first."""
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
