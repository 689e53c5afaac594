"""Stage ``verdict``: test whether the difference is real. ``python -m flows.verdict``."""

from tasks.runtime.stage import run_stage
from tasks.stages.judging import judge_and_crown

if __name__ == "__main__":
    run_stage("verdict", judge_and_crown)
