"""Stage ``select``: the selected checkpoint of each run, by the rule in the plan. ``python -m flows.select``."""

from tasks.runtime.stage import run_stage
from tasks.stages.selecting import select_checkpoints

if __name__ == "__main__":
    run_stage("select", select_checkpoints)
