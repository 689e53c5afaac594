"""Stages ``train`` and ``train_single``: one training run.  ``python -m flows.train --arm team --seed 0``."""

from prefect import flow

from tasks.identity.stages import settings_of
from tasks.runtime.arguments import arm_and_seed
from tasks.runtime.exit_status import explained
from tasks.runtime.stage import leave_out_training, main, stage, unless_left_out
from tasks.services.ranks import is_first_rank
from tasks.stages.training import train_along, train_arm, training_identity


@flow(name="train")
def train(arm: str, seed: int) -> None:
    """Train the team by MAGRPO, or the single agent by GRPO; checkpoints go to ``models/trained/<arm>-<seed>``."""
    params = settings_of("train", arm)
    with stage(f"train {arm}", params, seed, training_identity(params, arm, seed)) as run:
        train_arm(params, arm, seed, run)


@explained()
def along(arm: str, seed: int) -> None:
    """Take part in a run that another process leads (``train.processes``, ``accelerate launch``)."""
    train_along(arm, seed)


if __name__ == "__main__":
    given = arm_and_seed(__doc__)
    if is_first_rank():
        unless_left_out(leave_out_training, **given)
        main(train, **given)
    else:
        along(**given)
