"""Stage ``preregister``: the plan of the evaluation, fixed before the sweep.  ``python -m flows.preregister``."""

from prefect import flow

from pipeline_lib.evaluation.plan import make_plan
from pipeline_lib.problems.splits import load_manifest
from pipeline_lib.settings import load_params
from pipeline_lib.training.steps import planned_steps
from tasks.arms import PROBLEMS, RESULTS
from tasks.comparisons import comparisons, outside
from tasks.stage import main, stage


@flow(name="preregister")
def preregister() -> None:
    """Write ``results/plan.json``; its digest is on every result that follows."""
    params = load_params()
    with stage("preregister", params) as run:
        splits = load_manifest(PROBLEMS)["splits"]
        plan = make_plan(
            params.evaluate,
            params.verdict,
            {seed: planned_steps(params.train)[1:] for seed in params.seeds.train},
            {split: entry["ids"] for split, entry in splits.items()},
            comparisons(params),
            outside(params),
        )
        plan.write(RESULTS / "plan.json")
        run.tracked.tag({"symposium.plan": plan.digest})


if __name__ == "__main__":
    main(preregister)
