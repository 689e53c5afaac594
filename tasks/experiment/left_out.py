"""Runs that DVC plans but the settings do not need.

DVC takes the seeds from the file ``params.yaml`` only.  A preset of ``environment`` may have other seeds, for example
no single-agent baseline if a task has no single-agent form.  Such a stage writes empty files.
"""

from __future__ import annotations

import logging

from pipeline_lib import storage
from pipeline_lib.settings import load_params
from tasks.experiment.arms import TEAM, compute_file, seeds_of, sweep_folder, trained_folder
from tasks.experiment.training_files import training_file

log = logging.getLogger("symposium.stage")

_REASON = "left out: the settings, including the seeds of the environment's preset, have no such run\n"


def is_left_out(arm: str, seed: int) -> bool:
    """Return whether the settings, including the environment's preset, do not have this run; if so, log the reason."""
    left_out = seed not in seeds_of(load_params(), arm)
    if left_out:
        log.info("%s %d %s", arm, seed, _REASON.strip())
    return left_out


def leave_out_training(arm: str, seed: int) -> None:
    """Write the outputs that DVC expects of a training run, without content."""
    with storage.new_folder(trained_folder(arm, seed)) as folder:
        (folder / "left-out.txt").write_text(_REASON)
    storage.write_jsonl(training_file(arm, seed), ())
    if arm == TEAM:
        storage.write_json(compute_file(seed), {})


def leave_out_sweep(arm: str, seed: int) -> None:
    """Write the outputs that DVC expects of a run's sweep, without content."""
    with storage.new_folder(sweep_folder(arm, seed)) as folder:
        (folder / "left-out.txt").write_text(_REASON)
