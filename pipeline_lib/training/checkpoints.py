"""Checkpoints on disk: written under a temporary name and renamed, verified by digest, published by hard link.

    <scratch>/step-00010/   weights of every policy and checkpoint.json (step, digest of each file, digest of the team)
    <scratch>/state-00010/  what else is needed to continue: optimiser moments and counters (see trainer_state)

A folder under its final name is complete; digests detect later damage.  Nothing here depends on time or host: the same
training gives the same bytes.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

from pipeline_lib.policies.policy import Team
from pipeline_lib.policies.store import restore_team, save_team, team_digest
from pipeline_lib.storage import CorruptFileError, file_digest, file_digests, new_folder, write_json
from pipeline_lib.training.checkpoint_folders import RECORD, read_record, step_folder, steps_in


def write_checkpoint(scratch: Path, step: int, team: Team) -> Path:
    """Write the weights of a team as the checkpoint of a step; return its folder.

    An existing checkpoint of that step is replaced.
    """
    target = step_folder(scratch, step)
    with new_folder(target) as folder:
        save_team(team, folder)
        record = {"format": 1, "step": step, "team": team_digest(team), "files": file_digests(folder)}
        write_json(folder / RECORD, record)
    return target


def read_checkpoint(folder: Path) -> dict[str, Any]:
    """Return the record of a checkpoint after comparing every file with its digest.

    Raises:
        CorruptFileError: a file is missing or differs; the message names it.
    """
    record = read_record(folder / RECORD)
    verify(folder, record["files"])
    return record


def load_checkpoint(folder: Path, team: Team, only: Collection[str] | None = None) -> int:
    """Load a verified checkpoint into a team, or ``only`` that of some policies, and return its step.

    Raises:
        CorruptFileError: a file is missing or differs.
        PolicyError: the weights are of another team.
    """
    record = read_checkpoint(folder)
    restore_team(team, folder, only)
    return int(record["step"])


def clear_leftovers(folder: Path) -> None:
    """Remove temporary folders of killed runs."""
    for path in folder.glob(".*.part"):
        shutil.rmtree(path, ignore_errors=True)


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

    Existing folders in ``output`` are replaced or removed; their files are never changed in place.  On another file
    system the files are copied.

    Args:
        scratch: the folder in which training wrote them.
        output: the stage's output folder; checkpoints of other steps are removed from it.
        steps: steps of the checkpoints.

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
        with new_folder(target) as folder:
            shutil.copytree(source, folder, copy_function=_link, dirs_exist_ok=True)
        published.append(target)
    return published


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
            raise
        shutil.copyfile(source, target)
