"""Bytecode that is older than the source it was made from is not run.

Python believes a ``.pyc`` file when it names the source's size and time of modification.  A tool that keeps times
(``rsync -t``, ``cp -p``, ``touch -r``) can bring other source of the same size, and the old bytecode would run while
every digest of the source is new.  The time of the last change of status cannot be set, so it tells.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterable
from pathlib import Path


def forget_old_bytecode(*folders: Path) -> list[Path]:
    """Remove the bytecode of sources below ``folders`` that were changed, replaced or moved after it was written.

    Returns:
        the files that were removed.
    """
    return forget_old_bytecode_of(source for folder in folders for source in folder.rglob("*.py"))


def forget_old_bytecode_of(sources: Iterable[Path]) -> list[Path]:
    """Remove the bytecode of those of these files that were changed, replaced or moved after it was written.

    Returns:
        the files that were removed.
    """
    removed = []
    for source in sources:
        with contextlib.suppress(OSError, NotImplementedError):
            bytecode = Path(importlib.util.cache_from_source(str(source)))
            if bytecode.stat().st_mtime_ns <= source.stat().st_ctime_ns:
                bytecode.unlink()
                removed.append(bytecode)
    return removed
