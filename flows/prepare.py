"""Stage ``prepare``: problems, split and with a manifest.  ``python -m flows.prepare``."""

from prefect import flow

from pipeline_lib.problems.prepare import prepare as prepare_problems
from pipeline_lib.sandbox.executor import make_executor
from tasks.experiment.arms import PROBLEMS
from tasks.identity.stages import settings_of
from tasks.runtime.stage import main, stage


@flow(name="prepare")
def prepare() -> None:
    """Write the problems of every split and their manifest."""
    params = settings_of("prepare")
    with stage("prepare", params) as run:
        sandbox = params.sandbox
        manifest = prepare_problems(params.environment.kind, params.problems, PROBLEMS, lambda: make_executor(sandbox))
        rows = [
            {"split": split, "problems": entry["count"], "families": entry["families"], "digest": entry["digest"][:12]}
            for split, entry in manifest["splits"].items()
        ]
        run.table("splits", rows, "Problems by split; no problem is in two splits")
        run.log(0, {f"problems/{row['split']}": float(row["problems"]) for row in rows})


if __name__ == "__main__":
    main(prepare)
