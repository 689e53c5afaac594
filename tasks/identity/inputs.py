"""Check that a stage's inputs are what DVC recorded for the stages that wrote them, under their current identities.

``dvc repro`` ensures this before it starts a stage.  But ``dvc repro --single-item`` does not check other stages, and a
file may be changed by hand at any time.  A verdict on such inputs would be attributed to the wrong settings.
"""

from __future__ import annotations

import functools
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from tasks.experiment.arms import IDENTITIES, planned_seeds
from tasks.identity.stages import STAGES, identity_of

_HASHED = ("data", "results")
"""Where outputs are small enough to be hashed at every start; of others, number and size of the files are compared."""

_TRIES, _PAUSE_S = 5, 0.4  # DVC writes its lock file in place, and another stage may end at this moment

Lock = Mapping[str, Mapping[str, Any]]


def wrong_inputs(stage: str, identities: Mapping[str, Mapping[str, Any] | None]) -> list[str]:
    """Return what is wrong with the inputs of a stage, a line each.

    Args:
        stage: as DVC writes it, such as ``train@0``.
        identities: the identity of each stage that was written last.
    """
    found: list[str] = []
    now = functools.cache(identity_of)  # the seeds of a stage share one
    planned = functools.cache(planned_seeds)
    for number in range(_TRIES):
        if number:
            time.sleep(_PAUSE_S)
        lock = _read_lock()
        if lock is None:
            found = ["dvc.lock cannot be read"]
            continue
        lock = {name: entry for name, entry in lock.items() if _exists(name, planned)}
        found = list(_wrong(stage, lock, identities, now))
        if not found:
            break
    return found


def _read_lock() -> Lock | None:
    """Return the stages of ``dvc.lock``, none without the file, and None while it is being written."""
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        content = yaml.load(Path("dvc.lock").read_text(encoding="utf-8"), Loader=loader)
        return dict(content["stages"])
    except FileNotFoundError:
        return {}
    except (OSError, KeyError, TypeError, yaml.YAMLError):
        return None


def _exists(name: str, planned: Callable[[str], tuple[int, ...]]) -> bool:
    """Return whether ``dvc.yaml`` still has a stage of ``dvc.lock``, which keeps those of seeds that were taken out."""
    kind, _, seed = name.partition("@")
    return not seed or kind not in STAGES or seed in map(str, planned(STAGES[kind].arm))


def _wrong(
    stage: str, lock: Lock, identities: Mapping[str, Mapping[str, Any] | None], now: Callable[[str], dict[str, Any]]
) -> Iterator[str]:
    waiting, seen = [stage], {stage}
    direct = _reads(stage)
    yield from (f"{path}: no stage in dvc.lock has written it" for path in direct if not list(_makers(lock, path)))
    while waiting:
        name = waiting.pop()
        for path in direct if name == stage else _recorded(lock, name, "deps"):
            for producer, output in _makers(lock, path):
                if producer not in seen:
                    seen.add(producer)
                    waiting.append(producer)
                    if not _runs_as_it_ran(lock, producer, identities, now):
                        yield f"{producer} is stale: its dependencies have changed since it ran"
                if name == stage and not _is_as_written(output):
                    yield f"{output['path']} has changed since {producer} wrote it"
        if name != stage:
            for path, md5 in _recorded(lock, name, "deps").items():
                if not _was_read_as_made(lock, path, md5):
                    yield f"{name} is stale: {path} has been rewritten since it ran"


def _reads(stage: str) -> list[str]:
    """Return the paths that ``dvc.yaml`` lists as a stage's dependencies, without its identity."""
    name, _, seed = stage.partition("@")
    try:
        entry = yaml.safe_load(Path("dvc.yaml").read_text(encoding="utf-8"))["stages"][name]
    except (OSError, KeyError, TypeError):
        return []
    paths = [str(item).replace("${item.seed}", seed) for item in entry.get("deps", ())]
    return [path for path in paths if not _is_identity(path)]


def _recorded(lock: Lock, stage: str, kind: str) -> dict[str, str]:
    return {item["path"]: item["md5"] for item in lock[stage].get(kind, ()) if not _is_identity(item["path"])}


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


def _runs_as_it_ran(
    lock: Lock,
    producer: str,
    identities: Mapping[str, Mapping[str, Any] | None],
    now: Callable[[str], dict[str, Any]],
) -> bool:
    name = producer.partition("@")[0]
    if name not in STAGES:
        return True
    file = IDENTITIES / f"{name}.json"
    recorded = {item["path"]: item["md5"] for item in lock[producer].get("deps", ())}.get(file.as_posix())
    try:
        present = _md5(file)
    except OSError:
        return False
    return recorded == present and identities.get(name) == now(name)


def _is_as_written(output: Mapping[str, Any]) -> bool:
    path = Path(output["path"])
    if not path.exists():
        return False
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    if path.parts[0] not in _HASHED:
        size = sum(file.stat().st_size for file in files)
        return (size, len(files)) == (output.get("size"), output.get("nfiles", 1))
    if not path.is_dir():
        return _md5(path) == str(output["md5"])
    entries = [{"md5": _md5(file), "relpath": file.relative_to(path).as_posix()} for file in files]
    listing = json.dumps(sorted(entries, key=itemgetter("relpath")), sort_keys=True).encode()  # as DVC does
    return f"{hashlib.md5(listing, usedforsecurity=False).hexdigest()}.dir" == output["md5"]


def _was_read_as_made(lock: Lock, path: str, md5: str) -> bool:
    """Return whether what a stage read is what another wrote, by DVC's digests; a folder of many outputs has none."""
    made = {output["path"]: output["md5"] for _, output in _makers(lock, path)}
    return made.get(path, md5) == md5


def _md5(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
