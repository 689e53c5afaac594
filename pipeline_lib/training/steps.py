"""Which steps of a run get a checkpoint; known before training, and without loading torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline_lib.settings.train import TrainSettings


def planned_steps(settings: TrainSettings) -> list[int]:
    """Return the steps that get a checkpoint: 0, every ``checkpoint_every``-th, and the last."""
    return sorted({*range(0, settings.steps + 1, settings.checkpoint_every), settings.steps})
