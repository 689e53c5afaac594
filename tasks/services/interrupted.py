"""What a killed process can leave broken for good, found and mended when the next one starts.

DVC writes two files in place, so a kill in that moment leaves them empty or cut off, and then every command of DVC
fails: ``.dvc/tmp/rwlock``, which says who uses which file, and ``dvc.lock``.  Neither holds anything that is not
elsewhere: locks of a process that is gone mean nothing, and DVC's cache of runs has what ``dvc.lock`` said.
"""

import json
import logging
import re
import time
from pathlib import Path

log = logging.getLogger("symposium.chain")

_WRITING_S = 1.0
"""Seconds after which nobody is in the middle of writing so small a file."""

_BROKEN = re.compile(r"dvc\.lock' (validation failed|is invalid)")


def mend_locks(project: Path) -> str:
    """Remove the file of DVC's locks if it cannot be read; return what was done, empty if nothing was."""
    path = project / ".dvc/tmp/rwlock"
    try:
        while not _is_whole(path):
            if time.time() - path.stat().st_mtime > _WRITING_S:
                path.unlink()
                return _said(f"{path} was cut off by an interrupt; it was removed, which loses nothing")
            time.sleep(0.1)
    except FileNotFoundError:
        pass
    return ""


def mend_record(project: Path, said: str) -> str:
    """Put ``dvc.lock`` aside if ``said``, an error of DVC, is that it cannot be read; return what was done, else ""."""
    if not _BROKEN.search(" ".join(said.split())):
        return ""
    path, aside = project / "dvc.lock", project / "dvc.lock.broken"
    path.replace(aside)
    return _said(f"{path} was cut off by an interrupt; it is now {aside.name}, and DVC finds results in its cache")


def _is_whole(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_text(encoding="utf-8")), dict)
    except ValueError:
        return False


def _said(text: str) -> str:
    log.warning("%s", text)
    return text
