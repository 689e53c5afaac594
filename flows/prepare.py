"""Stage ``prepare``: problems, split and with a manifest.  ``python -m flows.prepare``."""

from pipeline_lib.problems.prepare import prepare as prepare_problems
from pipeline_lib.sandbox.executor import make_executor
from tasks.experiment.arms import PROBLEMS
from tasks.runtime.stage import StageRun, run_stage


def prepare(run: StageRun) -> None:
    """Write the problems of every split and their manifest."""
    params, sandbox = run.params, run.params.sandbox
    manifest = prepare_problems(params.environment.kind, params.problems, PROBLEMS, lambda: make_executor(sandbox))
    rows = [
        {"split": split, "problems": entry["count"], "families": entry["families"], "digest": entry["digest"][:12]}
        for split, entry in manifest["splits"].items()
    ]
    run.table("splits", rows, "Problems by split; no problem is in two splits")
    run.log(0, {f"problems/{row['split']}": float(row["problems"]) for row in rows})


if __name__ == "__main__":
    run_stage("prepare", prepare)
