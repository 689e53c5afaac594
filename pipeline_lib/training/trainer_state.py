"""The state of a run besides its weights (optimiser moments, versions, counters), and the step to continue from.

There is no generator state, since every random draw is a function of the seed and of its position (see `curriculum`).
States are twice as large as the weights, so only the newest `KEPT` stay on disk.  If all of them are damaged, training
starts again from the first checkpoint, which needs none.

Between two checkpoints there is at most one more point to continue from (`Between`), a checkpoint with its state that
is removed when the next one is complete (`tidy`).
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from pipeline_lib.storage import CorruptFileError, file_digests, new_folder, write_json
from pipeline_lib.training.checkpoint_folders import numbered, read_record, state_folder, step_folder, steps_in
from pipeline_lib.training.checkpoints import read_checkpoint, verify
from pipeline_lib.training.critic import Critic
from pipeline_lib.training.parallel import ALONE, Processes
from pipeline_lib.training.update import Learner

logger = logging.getLogger(__name__)

RECORD = "state.json"
CRITIC = "critic.tensors"  # no policy's moments have this name
KEPT = 2
EVERY_S = 60.0
"""Seconds of work that a run may lose when it is killed."""
_COST = 0.02  # greatest share of the time that is spent on points between checkpoints


class Between:
    """Decides when a run writes a point to continue from between two checkpoints.

    One is due a minute after the last point or checkpoint; later, where writing takes so long that it would cost more
    than 2 % of the time.
    """

    def __init__(self) -> None:
        """Begin to count the time."""
        self._last, self._writing_s = time.monotonic(), 0.0

    def due(self) -> bool:
        """Return whether it is time for a point."""
        return time.monotonic() - self._last >= max(EVERY_S, self._writing_s / _COST)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Measure how long the block takes to write, and count anew."""
        begin = time.monotonic()
        yield
        self._last = time.monotonic()
        self._writing_s = self._last - begin


def tidy(scratch: Path, step: int, planned: Collection[int]) -> None:
    """Remove earlier points that are no checkpoints of the run, then all but the newest states.

    To be called when checkpoint and state of ``step`` are complete: a run that is killed before, or whose disk is full,
    continues from what there was.

    Args:
        scratch: the run's folder.
        step: updates done; what later steps have left is not touched.
        planned: steps that must have a checkpoint at the end of the run, also if they were written as points between
            the checkpoints of another ``checkpoint_every``.
    """
    for old in numbered(scratch, "state-"):
        if old >= step or old in planned:
            continue
        try:
            between = bool(read_record(state_folder(scratch, old) / RECORD).get("between"))
        except CorruptFileError:  # damaged, or a removal was cut off: nobody can continue from it
            between = True
        if between:  # the state last, for it says what this is
            shutil.rmtree(step_folder(scratch, old), ignore_errors=True)
            shutil.rmtree(state_folder(scratch, old))
    for old in [s for s in numbered(scratch, "state-") if s <= step][:-KEPT]:
        shutil.rmtree(state_folder(scratch, old))


def write_state(
    scratch: Path,
    step: int,
    learners: Sequence[Learner],
    sampler: Mapping[str, Any],
    counters: Mapping[str, float],
    processes: Processes = ALONE,
    critic: Critic | None = None,
    between: bool = False,
) -> None:
    """Write moments and counters after a step.

    Every process must call it; the first one writes.

    Args:
        scratch: the run's folder.
        step: updates done.
        learners: policies with their optimisers.
        sampler: state of the sampler of problems, as JSON.
        counters: counts over the whole run.
        processes: the processes that train together.
        critic: of the first process, if there is one.
        between: the step has no checkpoint in the plan; `tidy` removes what is written of it.
    """
    with new_folder(state_folder(scratch, step)) if processes.first else contextlib.nullcontext() as folder:
        for learner in learners:  # one after the other, so that only one policy's moments are copied at a time
            _write_moments(learner, folder)
        if folder is None:
            return
        if critic is not None:
            save_file(critic.state(), folder / CRITIC)
        policies = {
            learner.policy.name: {
                "version": learner.policy.version,
                "budget": learner.budget,
                "refused": learner.optimiser.refused,
                "refused_in_a_row": learner.optimiser.refused_in_a_row,
            }
            for learner in learners
        }
        record = {
            "format": 1,
            "step": step,
            "between": between,
            "sampler": dict(sampler),
            "counters": dict(counters),
            "policies": policies,
            "files": file_digests(folder),
        }
        write_json(folder / RECORD, record)


def _write_moments(learner: Learner, folder: Path | None) -> None:
    moments = learner.optimiser.state()  # every process takes part
    if folder is not None:
        save_file(moments, folder / f"{learner.policy.name}.safetensors")


def load_state(
    scratch: Path, step: int, learners: Sequence[Learner], critic: Critic | None = None
) -> tuple[dict[str, Any], dict[str, float]]:
    """Load a verified state into optimisers, policies and critic; return the sampler's state, and the counters.

    Raises:
        CorruptFileError: a file is missing or differs, or the state is of other policies.
    """
    folder = state_folder(scratch, step)
    record = read_state(folder)
    if set(record["policies"]) != {learner.policy.name for learner in learners}:
        raise CorruptFileError(f"{folder}: holds policies {sorted(record['policies'])}, not those of this team")
    for learner in learners:
        values = record["policies"][learner.policy.name]
        learner.optimiser.restore(load_file(folder / f"{learner.policy.name}.safetensors"))
        learner.policy.version = values["version"]
        learner.budget = min(
            learner.budget, values["budget"]
        )  # an earlier budget may have been reduced for lack of memory
        learner.optimiser.refused = values["refused"]
        learner.optimiser.refused_in_a_row = values["refused_in_a_row"]
    if critic is not None:
        critic.restore(load_file(folder / CRITIC))
    return dict(record["sampler"]), dict(record["counters"])


def read_state(folder: Path) -> dict[str, Any]:
    """Return the record of a state after comparing every file with its digest.

    Raises:
        CorruptFileError: a file is missing or differs; the message names it.
    """
    record = read_record(folder / RECORD)
    verify(folder, record["files"])
    return record


def resume_point(scratch: Path, steps: int, planned: Collection[int]) -> int | None:
    """Return the newest step to continue from, or None to start from the beginning.

    A step qualifies if its checkpoint, its state (the first and the last step need none) and all planned checkpoints
    before it are intact.  The log names damaged files.

    Args:
        scratch: the run's folder.
        steps: number of steps of the run; later checkpoints are left alone.
        planned: steps that must have a checkpoint at the end of the run.
    """
    intact: set[int] = set()
    best = None
    for step in [s for s in steps_in(scratch) if s <= steps]:
        try:
            read_checkpoint(step_folder(scratch, step))
        except CorruptFileError as error:
            logger.warning("%s; training goes back to an earlier checkpoint", error)
            continue
        intact.add(step)
        if any(before not in intact for before in planned if before < step):
            continue
        if 0 < step < steps:
            try:
                read_state(state_folder(scratch, step))
            except CorruptFileError as error:
                if step >= max(numbered(scratch, "state-"), default=0):
                    logger.warning("%s; training goes back to an earlier checkpoint", error)
                continue
        best = step
    return best
