"""Stage ``preregister``: the plan of the evaluation, fixed before the sweep.  ``python -m flows.preregister``."""

from tasks.experiment.arms import PLAN_FILE
from tasks.experiment.plans import plan_of
from tasks.looks.looking import remember_plan
from tasks.runtime.stage import StageRun, run_stage


def preregister(run: StageRun) -> None:
    """Write ``results/plan.json``; a copy is on every result that follows, and git remembers every plan there was."""
    plan = plan_of(run.params)
    plan.write(PLAN_FILE)
    remember_plan(plan, run.name)
    run.tracked.tag({"symposium.plan": plan.digest})


if __name__ == "__main__":
    run_stage("preregister", preregister)
