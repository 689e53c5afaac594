"""Remove bytecode that is older than its source.

Python accepts a ``.pyc`` file if it records the source's size and time of modification.  A tool that preserves times
(``rsync -t``, ``cp -p``, ``touch -r``) can replace a source by another one of the same size, and the old bytecode would
run although every digest of the source is new.  The time of the last status change cannot be set, so it is compared
instead.
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
