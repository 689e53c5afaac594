"""Which steps of a run have a checkpoint, and where it is stored; without torch, for stages that need no weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_lib.storage import CorruptFileError, read_json

if TYPE_CHECKING:
    from pipeline_lib.settings.train import TrainSettings

RECORD = "checkpoint.json"


def planned_steps(settings: TrainSettings) -> list[int]:
    """Return the steps that get a checkpoint: 0, every ``checkpoint_every``-th, and the last."""
    return sorted({*range(0, settings.steps + 1, settings.checkpoint_every), settings.steps})


def step_folder(scratch: Path, step: int) -> Path:
    """Return the folder of a checkpoint."""
    return scratch / f"step-{step:05d}"


def state_folder(scratch: Path, step: int) -> Path:
    """Return the folder of the trainer's state after a step (see `trainer_state`)."""
    return scratch / f"state-{step:05d}"


def steps_in(folder: Path) -> list[int]:
    """Return the steps that have a checkpoint folder, in ascending order; their content is not verified."""
    return numbered(folder, "step-")


def numbered(folder: Path, prefix: str) -> list[int]:
    """Return the numbers behind ``prefix`` in the names of folders in ``folder``, in ascending order."""
    found = (path.name.removeprefix(prefix) for path in folder.glob(f"{prefix}*") if path.is_dir())
    return sorted(int(name) for name in found if name.isdigit())


def read_record(path: Path) -> dict[str, Any]:
    """Return a JSON record that lists files.

    Raises:
        CorruptFileError: it is missing, not JSON, or not such a record.
    """
    try:
        record = read_json(path)
    except FileNotFoundError:
        raise CorruptFileError(f"{path}: missing") from None
    if not isinstance(record, dict) or record.get("format") != 1 or not isinstance(record.get("files"), dict):
        raise CorruptFileError(f"{path}: not a checkpoint record of format 1")
    return record
