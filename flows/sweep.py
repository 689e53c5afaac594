"""Stages ``sweep`` and ``sweep_single``: every checkpoint on validation.  ``python -m flows.sweep --seed 0``."""

from prefect import flow

from tasks.identity.stages import settings_of
from tasks.runtime.arguments import arm_and_seed
from tasks.runtime.stage import leave_out_sweep, main, stage, unless_left_out
from tasks.stages.sweeping import sweep_arm


@flow(name="sweep")
def sweep(arm: str, seed: int) -> None:
    """Evaluate the base and every checkpoint of one run; only checkpoints not evaluated before cost anything."""
    params = settings_of("sweep", arm)
    with stage(f"sweep {arm}", params, seed) as run:
        sweep_arm(params, arm, seed, run)


if __name__ == "__main__":
    given = arm_and_seed(__doc__)
    unless_left_out(leave_out_sweep, **given)
    main(sweep, **given)
