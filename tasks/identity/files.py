"""The identities as files that DVC depends on, and the checks that keep them correct.

``python -m flows.identity --write`` writes one identity per stage and training seed to ``results/identity/``, so that
one seed's file says nothing of the others.  A stage refuses to run under an identity that is not its own (`check`), and
when it has ended, it writes from what it made its results (`tasks.identity.dvc_record`).

Its inputs must be what DVC recorded for the stages that wrote them, under their current identities (`wrong_inputs`).
``dvc repro`` ensures this before it starts a stage.  But ``dvc repro --single-item`` does not check other stages, and a
file may be changed by hand at any time.  A verdict on such inputs would be attributed to the wrong settings.
"""

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from pipeline_lib.identity.code import other_versions
from pipeline_lib.settings import load_params
from pipeline_lib.storage import CorruptFileError, canonical_json, read_json, write_json
from tasks.experiment.arms import IDENTITIES
from tasks.experiment.check_run import check_run
from tasks.identity.dvc_record import (
    Lock,
    contradiction,
    dvc_digest,
    identity_file,
    kind_of,
    listed,
    made_from,
    read_lock,
    recorded,
    refuse_false_records,
    remove_outdated,
    running_stage,
    write_made,
)
from tasks.identity.stages import STAGES, IdentityError, identity_of, left_out, planned


def write_identities() -> None:
    """Write the identity of every stage to ``results/identity/<stage>.json``, or ``<stage>@<seed>.json``.

    Unchanged files are not rewritten, and those of stages that are no longer planned are removed.

    Raises:
        SettingsError: a setting is wrong, or the run could not end well.
        IdentityError: as `refuse_false_records`.
    """
    identities = _present()
    for path in set(IDENTITIES.glob("*.json")) - set(map(identity_file, identities)):
        path.unlink()
    for name, identity in identities.items():
        if read_identity(identity_file(name)) != identity:
            write_json(identity_file(name), identity)
    refuse_false_records()
    remove_outdated()


def changed_identities() -> list[str]:
    """Return the stages whose identity differs from the written one; raises as `write_identities`."""
    changed = [name for name, identity in _present().items() if read_identity(identity_file(name)) != identity]
    if not changed:  # else they are written first
        refuse_false_records()
    return changed


def made_with_other_libraries() -> str:
    """Return which libraries have made the results that are here, if they are others than those here; else empty.

    The results may be of a run on another machine, and whoever looks for a change of code or settings finds none.
    """
    lock, theirs, ours = read_lock() or {}, dict[str, str](), dict[str, str]()
    for name, identity in _present().items():
        made = read_identity(identity_file(name)) if name in lock else None
        for library, version in (made or {}).get("versions", {}).items():
            if (here := identity["versions"].get(library, version)) != version:
                theirs[library], ours[library] = version, here
    others = other_versions(theirs, ours, "here")
    return f"the results here are stale, since other libraries have made them: {others}" if others else ""


def _present() -> dict[str, dict[str, Any]]:
    """Return the present identities by DVC's names of the stages; raises SettingsError as `write_identities`."""
    params = load_params()
    check_run(params)
    kinds = {kind: identity_of(kind, params) for kind in STAGES}
    return {name: found | left_out(name, params) for kind, found in kinds.items() for name in planned(kind)}


def read_identity(path: Path) -> dict[str, Any] | None:
    """Return a written identity, or None if it is missing or damaged."""
    try:
        return dict(read_json(path))
    except (FileNotFoundError, CorruptFileError, TypeError, ValueError):
        return None


def check() -> dict[str, Any] | None:
    """Check that DVC will store the result of this stage under the right identity; without DVC, return None.

    DVC uses the identity that was written last.  Code or settings may have changed since: during a run, or before
    ``dvc repro --single-item``, which skips the stage ``identity`` and all other dependencies.

    Returns:
        what `finish` needs when the stage has ended.

    Raises:
        IdentityError: they have changed, or the stage's inputs differ from those that DVC has stored.
    """
    stage = running_stage()
    if not stage:
        return None
    written, now = read_identity(identity_file(stage)), identity_of(stage)
    if written != now:
        lines = differences(written, now) if written else [f"there is no {identity_file(stage)}"]
        raise IdentityError(
            f"stage {stage} would be stored under a wrong identity; this has changed since the stage "
            f"`identity` ran:\n  {_shown(lines)}\n{_ADVICE}"
        )
    if lines := wrong_inputs(stage):
        raise IdentityError(f"stage {stage} would use inputs that are not up to date:\n  {_shown(lines)}\n{_ADVICE}")
    return made_from(stage)


def finish(began: dict[str, Any] | None) -> None:
    """Write beside the results of this stage from what it made them; raises as `write_made`."""
    if began is not None:
        write_made(running_stage(), began)


def refuse_stale(paths: Sequence[str]) -> None:
    """Refuse to use results that the present code and settings did not make.

    Raises:
        IdentityError: a stage on which ``paths`` depend is stale, or a file was changed by hand.
    """
    if lines := wrong_inputs("", paths):
        others = filter(None, [made_with_other_libraries()])
        raise IdentityError(
            f"these results are not those of the present code and settings:\n  {_shown([*others, *lines])}\n{_ADVICE}; "
            "or take the changes back"
        )


_ADVICE = "run `dvc repro` (or `python -m flows.experiment`) again; it updates them first"


def _shown(lines: list[str]) -> str:
    return "\n  ".join([*lines[:12], *(["..."] if len(lines) > 12 else [])])


def dvc_has_taken(stage: str, seed: int) -> bool:
    """Return whether ``dvc.lock`` has a training run with the current identity, so that DVC owns its outputs.

    False for a run that finished but was killed before DVC stored it.
    """
    identity = identity_file(name := f"{stage}@{seed}")
    inputs = recorded((read_lock() or {}).get(name, {}), "deps")
    return identity.is_file() and inputs.get(identity.as_posix()) == dvc_digest(identity)


_HASHED = ("data", "results")
"""Where outputs are small enough to be hashed at every start; of others, number and size of the files are compared."""

_TRIES, _PAUSE_S = 5, 0.4  # DVC writes its lock file in place, and another stage may end at this moment


def wrong_inputs(stage: str, paths: Sequence[str] = ()) -> list[str]:
    """Return what is wrong with the inputs of a stage, a line each.

    Args:
        stage: as DVC writes it, such as ``train@0``; "" for a reader of ``paths`` that is no stage.
        paths: what such a reader reads.
    """
    lines: list[str] = []
    settings = functools.cache(load_params)
    shared = functools.cache(lambda kind: identity_of(kind, settings()))

    def now(name: str) -> dict[str, Any]:
        return shared(kind_of(name)) | left_out(name, settings())

    reads = paths or [path for path in listed(stage, "deps") if not _is_identity(path)]
    for number in range(_TRIES):
        if number:
            time.sleep(_PAUSE_S)
        lock = read_lock()
        lines = ["dvc.lock cannot be read"] if lock is None else list(_wrong(stage, reads, lock, now))
        if not lines:
            break
    return lines


def _wrong(stage: str, direct: Sequence[str], lock: Lock, now: Callable[[str], dict[str, Any]]) -> Iterator[str]:
    waiting, seen = [stage], {stage}
    yield from (f"{path}: no stage in dvc.lock has written it" for path in direct if not list(_makers(lock, path)))
    while waiting:
        name = waiting.pop()
        for path in direct if name == stage else _inputs(lock, name):
            for producer, output in _makers(lock, path):
                if producer not in seen:
                    seen.add(producer)
                    waiting.append(producer)
                    if not _runs_as_it_ran(lock, producer, now):
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
            place = PurePosixPath(output["path"])
            if not _is_identity(output["path"]) and (place.is_relative_to(wanted) or wanted.is_relative_to(place)):
                yield stage, output


def _inputs(lock: Lock, stage: str) -> dict[str, str]:
    return {path: md5 for path, md5 in recorded(lock[stage], "deps").items() if not _is_identity(path)}


def _runs_as_it_ran(lock: Lock, producer: str, now: Callable[[str], dict[str, Any]]) -> bool:
    file = identity_file(producer)
    if kind_of(producer) not in STAGES:
        return True
    try:
        present = dvc_digest(file)
    except OSError:
        return False
    return recorded(lock[producer], "deps").get(file.as_posix()) == present and read_identity(file) == now(producer)


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


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return one line per difference of two identities: ``train.learning_rate: 0.001 -> 0.0005``."""
    lines = []
    for part in ("settings", "code", "versions", "named", "content", "left_out", "image"):
        prefix = "" if part == "settings" else f"{part}: "
        lines += [f"{prefix}{line}" for line in _differences(old.get(part), new.get(part))]
    return lines


def _differences(old: Any, new: Any, prefix: str = "") -> Iterator[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            name = f"{prefix}{key}"
            if key not in old:
                yield f"{name}: new"
            elif key not in new:
                yield f"{name}: gone"
            elif old[key] != new[key]:
                if isinstance(old[key], Mapping) and isinstance(new[key], Mapping):
                    yield from _differences(old[key], new[key], f"{name}.")
                else:
                    yield f"{name}: {_change(old[key], new[key])}"
    elif old != new:
        yield f"{prefix}{_change(old, new)}"


def _change(old: Any, new: Any) -> str:
    if all(isinstance(value, str) and len(value) == 64 for value in (old, new)):
        return "changed"
    return f"{canonical_json(old)} -> {canonical_json(new)}"
