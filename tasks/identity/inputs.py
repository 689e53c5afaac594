"""Check that a stage's inputs are what DVC recorded for the stages that wrote them, under their current identities.

``dvc repro`` ensures this before it starts a stage.  But ``dvc repro --single-item`` does not check other stages, and a
file may be changed by hand at any time.  A verdict on such inputs would be attributed to the wrong settings.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from tasks.experiment.arms import IDENTITIES
from tasks.identity.dvc_record import Lock, dvc_digest, identity_file, kind_of, listed, read_lock, recorded
from tasks.identity.made import contradiction
from tasks.identity.stages import STAGES, identity_of

_HASHED = ("data", "results")
"""Where outputs are small enough to be hashed at every start; of others, number and size of the files are compared."""

_TRIES, _PAUSE_S = 5, 0.4  # DVC writes its lock file in place, and another stage may end at this moment


def wrong_inputs(
    stage: str, identities: Mapping[str, Mapping[str, Any] | None], paths: Sequence[str] = ()
) -> list[str]:
    """Return what is wrong with the inputs of a stage, a line each.

    Args:
        stage: as DVC writes it, such as ``train@0``; "" for a reader that is no stage.
        identities: the identity of each stage that was written last.
        paths: what such a reader reads.
    """
    found: list[str] = []
    now = functools.cache(identity_of)  # the seeds of a stage share one
    reads = paths or [path for path in listed(stage, "deps") if not _is_identity(path)]
    for number in range(_TRIES):
        if number:
            time.sleep(_PAUSE_S)
        lock = read_lock()
        found = ["dvc.lock cannot be read"] if lock is None else list(_wrong(stage, reads, lock, identities, now))
        if not found:
            break
    return found


def _wrong(
    stage: str,
    direct: Sequence[str],
    lock: Lock,
    identities: Mapping[str, Mapping[str, Any] | None],
    now: Callable[[str], dict[str, Any]],
) -> Iterator[str]:
    waiting, seen = [stage], {stage}
    yield from (f"{path}: no stage in dvc.lock has written it" for path in direct if not list(_makers(lock, path)))
    while waiting:
        name = waiting.pop()
        for path in direct if name == stage else _inputs(lock, name):
            for producer, output in _makers(lock, path):
                if producer not in seen:
                    seen.add(producer)
                    waiting.append(producer)
                    if not _runs_as_it_ran(lock, producer, identities, now):
                        yield f"{producer} is stale: its dependencies have changed since it ran"
                    if others := contradiction(producer, lock[producer]):
                        yield f"{producer} is not what dvc.lock says: it was not made with {', '.join(others)}"
                if name == stage and not _is_as_written(output):
                    yield f"{output['path']} has changed since {producer} wrote it"
        if name != stage:
            for path, md5 in _inputs(lock, name).items():
                if not _was_read_as_made(lock, path, md5):
                    yield f"{name} is stale: {path} has been rewritten since it ran"


def _is_identity(path: str) -> bool:
    return PurePosixPath(path).is_relative_to(IDENTITIES.as_posix())


def _makers(lock: Lock, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield stage and output of whatever lies at ``path``, below it, or above it."""
    wanted = PurePosixPath(path)
    for stage, entry in lock.items():
        for output in entry.get("outs", ()):
            own = PurePosixPath(output["path"])
            if not _is_identity(output["path"]) and (own.is_relative_to(wanted) or wanted.is_relative_to(own)):
                yield stage, output


def _inputs(lock: Lock, stage: str) -> dict[str, str]:
    return {path: md5 for path, md5 in recorded(lock[stage], "deps").items() if not _is_identity(path)}


def _runs_as_it_ran(
    lock: Lock,
    producer: str,
    identities: Mapping[str, Mapping[str, Any] | None],
    now: Callable[[str], dict[str, Any]],
) -> bool:
    name, file = kind_of(producer), identity_file(producer)
    if name not in STAGES:
        return True
    try:
        present = dvc_digest(file)
    except OSError:
        return False
    return recorded(lock[producer], "deps").get(file.as_posix()) == present and identities.get(name) == now(name)


def _is_as_written(output: Mapping[str, Any]) -> bool:
    path = Path(output["path"])
    if not path.exists():
        return False
    if path.parts[0] in _HASHED:
        return dvc_digest(path) == str(output["md5"])
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files)
    return (size, len(files)) == (output.get("size"), output.get("nfiles", 1))


def _was_read_as_made(lock: Lock, path: str, md5: str) -> bool:
    """Return whether what a stage read is what another wrote, by DVC's digests; a folder of many outputs has none."""
    made = {output["path"]: output["md5"] for _, output in _makers(lock, path)}
    return made.get(path, md5) == md5
