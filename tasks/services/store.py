"""DVC's default remote as a file system; machines share results through it."""

import os
import time
import uuid
from pathlib import Path
from typing import Any

_TRIED = 4 << 20


class StoreError(RuntimeError):
    """The store does not do what is asked of it; the message says which step failed."""


def default_remote(project: Path) -> tuple[Any, str]:
    """Return the file system of DVC's default remote, with the credentials that DVC has, and the folder in it.

    Raises:
        dvc.exceptions.DvcException: there is no default remote, or one of an unknown kind.
    """
    # DVC loads for a second, and only runs that share need it.
    from dvc.repo import Repo

    remote = Repo(str(project)).cloud.get_remote()
    return remote.fs, remote.path


def try_store(project: Path) -> str:
    """Write a file to the store, list, read, compare and remove it; return how fast that was.

    Raises:
        StoreError: a step failed.
    """
    content, name, step = os.urandom(_TRIED), f"symposium-doctor-{uuid.uuid4().hex}", "opened"
    try:
        files, folder = default_remote(project)
        path, step, began = files.join(folder, name), "written", time.monotonic()
        files.makedirs(folder, exist_ok=True)
        with files.open(path, "wb") as file:
            file.write(content)
        written_s, step = time.monotonic() - began, "listed"
        is_listed = name in {files.name(found.rstrip("/")) for found in files.ls(folder, detail=False)}
        step, began = "read", time.monotonic()
        with files.open(path, "rb") as file:
            is_equal = file.read() == content
        read_s, step = time.monotonic() - began, "removed"
        files.remove(path)
    except Exception as error:  # each kind of store has its own
        raise StoreError(f"a file could not be {step}: {error}") from error
    if not (is_listed and is_equal):
        raise StoreError(f"a file that was written {'has another content' if is_listed else 'is not listed'}")
    return f"{folder}: written at {_TRIED / 1e6 / written_s:.0f} MB/s, read at {_TRIED / 1e6 / read_s:.0f} MB/s"
