"""Stage ``preregister``: the plan of the evaluation, fixed before the sweep.  ``python -m flows.preregister``."""

from prefect import flow

from tasks.experiment.arms import PLAN_FILE
from tasks.experiment.plans import plan_of
from tasks.identity.stages import settings_of
from tasks.looks.looking import remember_plan
from tasks.runtime.stage import main, stage


@flow(name="preregister")
def preregister() -> None:
    """Write ``results/plan.json``; a copy is on every result that follows, and git remembers every plan there was."""
    params = settings_of("preregister")
    with stage("preregister", params) as run:
        plan = plan_of(params)
        plan.write(PLAN_FILE)
        remember_plan(plan, run.name)
        run.tracked.tag({"symposium.plan": plan.digest})


if __name__ == "__main__":
    main(preregister)
