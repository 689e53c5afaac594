"""A lock between the processes of one machine that a killed process releases.

It is a lock of the kernel (``flock``): when its holder dies, also by ``kill -9``, the lock is free.  It does not work
across machines.  The file that remains is empty and has no meaning.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold the lock ``path`` for the length of a ``with`` block.  Parents are made.

    Args:
        path: an empty file, made if it is missing.
        wait: until the lock is free.

    Raises:
        BlockingIOError: another process, or this one, holds the lock, and ``wait`` is false.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
