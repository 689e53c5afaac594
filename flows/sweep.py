"""Stages ``sweep`` and ``sweep_single``: every checkpoint on validation.  ``python -m flows.sweep --seed 0``."""

from tasks.runtime.stage import leave_out_sweep, run_stage_of_arm
from tasks.stages.sweeping import sweep_arm

if __name__ == "__main__":
    run_stage_of_arm("sweep", sweep_arm, leave_out_sweep, __doc__)
