"""Stage ``preregister``: the plan of the evaluation, fixed before the sweep.  ``python -m flows.preregister``."""

from prefect import flow

from tasks.arms import PLAN_FILE
from tasks.looking import remember_plan
from tasks.plans import plan_of
from tasks.stage import main, stage
from tasks.stage_identity import settings_of


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
