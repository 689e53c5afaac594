"""Runs that DVC plans but the settings do not need.

DVC takes the seeds from the file ``params.yaml`` only.  A preset of ``environment`` may have other seeds, for example
no single-agent baseline if a task has no single-agent form.  Such a stage writes empty files, and like every other one
from what it made them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from pipeline_lib import storage
from pipeline_lib.settings import SettingsError, load_params
from tasks.experiment.arms import TEAM, compute_file, seeds_of, sweep_folder, trained_folder, training_file
from tasks.identity.files import check, finish
from tasks.runtime.exit_status import explained

_REASON = "left out: the settings, including the seeds of the environment's preset, have no such run\n"


@explained()
def unless_left_out(leave_out: Callable[[str, int], None], arm: str, seed: int) -> None:
    """End the process, with empty outputs, if the settings do not have this run; no server is started for it.

    The environment's preset belongs to the settings.
    """
    try:
        if seed in seeds_of(load_params(), arm):
            return
    except SettingsError:  # whoever does the work reports it
        return
    began = check()
    leave_out(arm, seed)
    finish(began)
    sys.stdout.write(f"{arm} {seed} {_REASON}")
    sys.exit(0)


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
