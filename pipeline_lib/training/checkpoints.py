"""Checkpoints on disk: written under a temporary name and renamed, verified by digest, published by hard link.

    <scratch>/step-00010/   weights of every policy and checkpoint.json (step, digest of each file, digest of the team)
    <scratch>/state-00010/  what continuing needs besides: optimiser moments and counters (see trainer_state)

A folder under its final name is complete, unless the disk damaged it later, which its digests show.  Nothing here
depends on time or host: the same training gives the same bytes.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from pipeline_lib.policies.policy import Team
from pipeline_lib.policies.store import restore_team, save_team, team_digest
from pipeline_lib.storage import CorruptFileError, file_digest, write_json
from pipeline_lib.training.checkpoint_folders import RECORD, read_record, step_folder, steps_in


def write_checkpoint(scratch: Path, step: int, team: Team) -> Path:
    """Write the weights of a team as the checkpoint of a step and return its folder; one of that step is replaced."""

    def content(folder: Path) -> None:
        save_team(team, folder)
        record = {"format": 1, "step": step, "team": team_digest(team), "files": digests(folder)}
        write_json(folder / RECORD, record)

    return write_folder(step_folder(scratch, step), content)


def read_checkpoint(folder: Path) -> dict[str, Any]:
    """Return the record of a checkpoint after comparing every file with its digest.

    Raises:
        CorruptFileError: a file is missing or differs; the message names it.
    """
    record = read_record(folder / RECORD)
    verify(folder, record["files"])
    return record


def load_checkpoint(folder: Path, team: Team) -> int:
    """Put a verified checkpoint's weights into a team and return its step.

    Raises:
        CorruptFileError: a file is missing or differs.
        PolicyError: the weights are of another team.
    """
    record = read_checkpoint(folder)
    restore_team(team, folder)
    return int(record["step"])


def write_folder(folder: Path, content: Callable[[Path], None]) -> Path:
    """Fill a folder under a temporary name and rename it, so that it is there completely or not at all."""
    temporary = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        content(temporary)
        for path in [*temporary.rglob("*"), temporary]:
            _flush(path)
        replace_folder(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return folder


def replace_folder(source: Path, target: Path) -> None:
    """Rename a folder onto another, which is removed; a kill in between leaves at worst neither under its name."""
    old = target.with_name(f".{target.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    source.rename(target)
    shutil.rmtree(old, ignore_errors=True)
    _flush(target.parent)


def clear_leftovers(folder: Path) -> None:
    """Remove what killed runs left under temporary names."""
    for path in [*folder.glob(".*.part"), *folder.glob(".*.old")]:
        shutil.rmtree(path, ignore_errors=True)


def digests(folder: Path) -> dict[str, str]:
    """Return the digest of every file below a folder by its relative name."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): file_digest(path) for path in files}


def verify(folder: Path, files: dict[str, str]) -> None:
    """Compare files with their digests.

    Raises:
        CorruptFileError: a file is missing or differs; the message names it.
    """
    for name, expected in files.items():
        path = folder / name
        if not path.is_file():
            raise CorruptFileError(f"{path}: missing, although the checkpoint lists it")
        if file_digest(path) != expected:
            raise CorruptFileError(f"{path}: damaged or truncated, its digest is not the one recorded")


def publish(scratch: Path, output: Path, steps: Collection[int]) -> list[Path]:
    """Make ``output`` hold exactly the given checkpoints, as hard links to the ones in ``scratch``.

    Files are never written in place: a link replaces a folder under its name, and what lies there from another run is
    removed, not changed.  On another file system the bytes are copied.

    Args:
        scratch: where training wrote them.
        output: the stage's output folder; checkpoints of other steps are removed from it.
        steps: which ones.

    Returns:
        Their folders in ``output``, by ascending step.

    Raises:
        CorruptFileError: one is missing or damaged.
    """
    output.mkdir(parents=True, exist_ok=True)
    clear_leftovers(output)
    for step in set(steps_in(output)) - set(steps):
        shutil.rmtree(step_folder(output, step))
    published = []
    for step in sorted(steps):
        source, target = step_folder(scratch, step), step_folder(output, step)
        read_checkpoint(source)
        temporary = target.with_name(f".{target.name}.part")
        for path in sorted(source.rglob("*")):
            place = temporary / path.relative_to(source)
            if path.is_file():
                place.parent.mkdir(parents=True, exist_ok=True)
                _link(path, place)
        replace_folder(temporary, target)
        published.append(target)
    return published


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
            raise
        shutil.copyfile(source, target)


def _flush(path: Path) -> None:
    """Ask the system to put a file or folder on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
