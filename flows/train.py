"""Stages ``train`` and ``train_single``: one training run.  ``python -m flows.train --arm team --seed 0``."""

from tasks.runtime.arguments import arm_and_seed
from tasks.runtime.exit_status import explained
from tasks.runtime.stage import leave_out_training, run_stage_of_arm
from tasks.services.ranks import is_first_rank
from tasks.stages.training import train_along, train_arm, training_identity

if __name__ == "__main__":
    if is_first_rank():
        run_stage_of_arm("train", train_arm, leave_out_training, __doc__, training_identity)
    else:  # another process leads this run (``train.processes``, ``accelerate launch``)
        explained()(train_along)(**arm_and_seed(__doc__))
