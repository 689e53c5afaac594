"""Files that are never half-written, and the digests that identify everything.

Every file of the project is written under a temporary name in the same folder and then renamed, so a reader (or a run
that continues after ``kill -9`` or a full disk) sees the old file or the new one.  Digests are SHA-256 over canonical
JSON or over file contents; a digest never includes a path, a time or a host.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class CorruptFileError(RuntimeError):
    """A file's content does not match the digest recorded for it, or cannot be parsed."""


def canonical_json(value: Any) -> str:
    """Return the one JSON text of ``value``: sorted keys, no spaces, no NaN.

    Raises:
        ValueError: ``value`` holds NaN or an infinity.
        TypeError: ``value`` holds something JSON has no form for.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def digest(value: Any) -> str:
    """Return the SHA-256 (64 hexadecimal digits) of a JSON-like value."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """Return the SHA-256 (64 hexadecimal digits) of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_digest(folder: Path) -> str:
    """Return one SHA-256 over the relative names and contents of all files below ``folder``."""
    return digest([[name, found] for name, found in file_digests(folder).items()])


def file_digests(folder: Path) -> dict[str, str]:
    """Return the digest of every file below ``folder`` by its relative name, sorted by path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): file_digest(path) for path in files}


def process_label() -> str:
    """Return the id of this process with that of its namespace: containers that share a folder have equal ids."""
    return f"{pid_namespace()}-{os.getpid()}"


def has_ended(label: str) -> bool:
    """Return whether the process of a `process_label` has ended; False if it is in another container."""
    namespace, _, pid = label.partition("-")
    return namespace == pid_namespace() and not Path(f"/proc/{pid}").exists()


def pid_namespace() -> str:
    """Return the namespace in which process ids mean something here; empty where the system does not say."""
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:  # no Linux
        return ""


def write_bytes(path: Path, content: bytes, keep_mode: bool = False) -> None:
    """Write ``content`` to ``path`` so that the file is complete or untouched; parents are made.

    With ``keep_mode`` it has the permissions of the file in whose place it comes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{process_label()}.part")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if keep_mode:
            shutil.copymode(path, temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder that takes the place of ``path`` when the block ends well, and vanishes when it fails.

    So ``path`` is complete, old or absent, never half-written, also after a loss of power; leftovers of killed
    processes beside it are removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for leftover in path.parent.glob(f".{path.name}.*.part"):
        if (label := leftover.name.split(".")[-2]) == process_label() or has_ended(label):
            shutil.rmtree(leftover, ignore_errors=True)
    temporary = path.with_name(f".{path.name}.{process_label()}.part")
    temporary.mkdir()
    try:
        yield temporary
        for written in [*temporary.rglob("*"), temporary]:
            _flush(written)
        if path.exists():
            old = path.with_name(f".{path.name}.old.{process_label()}.part")
            path.rename(old)
            temporary.rename(path)
            shutil.rmtree(old)
        else:
            temporary.rename(path)
        _flush(path.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _flush(path: Path) -> None:
    """Ask the system to put a file or folder on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, content: str, keep_mode: bool = False) -> None:
    """Write UTF-8 text; see `write_bytes`."""
    write_bytes(path, content.encode(), keep_mode)


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON that people and ``dvc diff`` can read; NaN is refused (ValueError)."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


class RepeatedKeyError(ValueError):
    """An object of JSON has a key twice, of which Python would silently take the last."""


def parse_json(text: str) -> Any:
    """Return the value of JSON.

    Raises:
        ValueError: it is not JSON (json.JSONDecodeError), or has a key twice in an object (RepeatedKeyError).
    """
    return json.loads(text, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise RepeatedKeyError(f"the key {next(name for name in names if names.count(name) > 1)!r} occurs twice")
    return found


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        FileNotFoundError: no such file.
        CorruptFileError: the file is not JSON, or has a key twice in an object; the message names it.
    """
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except RepeatedKeyError as error:
        raise CorruptFileError(f"{path}: {error}") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CorruptFileError(f"{path}: not valid JSON ({error}); delete it and run the same command again") from error


def write_jsonl(path: Path, rows: Iterable[Any]) -> None:
    """Write one JSON value a line; see `write_bytes`."""
    write_text(path, "".join(canonical_json(row) + "\n" for row in rows))


def read_jsonl(path: Path) -> Iterator[Any]:
    """Yield the values of a JSON-lines file.

    Raises:
        CorruptFileError: a line is not JSON; the message names file and line.
    """
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                yield json.loads(line)
            except json.JSONDecodeError as error:
                raise CorruptFileError(f"{path}:{number}: not valid JSON ({error})") from error
