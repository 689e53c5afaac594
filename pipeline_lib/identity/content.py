"""Digests of the content of files and folders; digests of large unchanged files are cached.

A file counts as unchanged if its device, inode, size, and times of modification *and* of status change are the same.
Programs cannot set the last one, so an edited file with its old time of modification counts as changed.
"""

import json
import os
from pathlib import Path

from pipeline_lib.storage import digest, file_digest, write_json

_LARGE = 1 << 20  # bytes; smaller files are read again


class DigestCache:
    """Computes digests, and caches those of large files.

    Args:
        memory: JSON file for the cache; None keeps it in memory only.
    """

    def __init__(self, memory: Path | None = None) -> None:
        self._memory = memory
        self._known: dict[str, list[object]] = {}
        if memory is not None:
            try:
                self._known = dict(json.loads(memory.read_text(encoding="utf-8")))
            except (OSError, ValueError, TypeError):
                self._known = {}

    def of(self, path: Path) -> str:
        """Return the SHA-256 (64 hexadecimal digits) of a file, or of names and contents of all files of a folder.

        Raises:
            FileNotFoundError: the path does not exist.
        """
        if path.is_dir():
            return digest([[name, found] for name, found in self.files(path).items()])
        stat = path.stat()
        if stat.st_size < _LARGE:
            return file_digest(path)
        state = [stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
        key = str(path.resolve())
        remembered = self._known.get(key)
        if isinstance(remembered, list) and remembered[:-1] == state:
            return str(remembered[-1])
        found = file_digest(path)
        self._known[key] = [*state, found]
        self._keep()
        return found

    def files(self, folder: Path) -> dict[str, str]:
        """Return the digests of all files below a folder by relative name; hidden ones and caches do not count."""
        digests = {}
        for place, folders, names in os.walk(folder, followlinks=True):
            folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
            for name in sorted(names):
                path = Path(place, name)
                if not name.startswith(".") and path.is_file():
                    digests[path.relative_to(folder).as_posix()] = self.of(path)
        return digests

    def _keep(self) -> None:
        if self._memory is not None:
            kept = {key: value for key, value in self._known.items() if Path(key).exists()}
            write_json(self._memory, kept)
