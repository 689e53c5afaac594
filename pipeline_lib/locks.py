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
def locked(path: Path) -> Iterator[None]:
    """Hold the lock ``path`` for the length of a ``with`` block; waits until it is free. Parents are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
