"""Stages ``sweep`` and ``sweep_single``: every checkpoint on validation.  ``python -m flows.sweep --seed 0``."""

import shutil

from pipeline_lib import storage
from pipeline_lib.environment_api.registry import find
from pipeline_lib.evaluation.episodes import summarise_team
from pipeline_lib.training.checkpoint_folders import RECORD, step_folder
from tasks.experiment.arms import PROBLEMS, sweep_folder, trained_folder
from tasks.identity.stages import whole
from tasks.looks.looking import begin_sweep
from tasks.runtime.stage import StageRun, leave_out_sweep, run_stage_of_arm
from tasks.stages.champion import checkpoint
from tasks.stages.evaluation import Evaluator, checkpoint_steps


def sweep_arm(run: StageRun) -> None:
    """Evaluate every checkpoint of a run, step 0 (the base) included, into ``results/sweep/<arm>-<seed>/``."""
    params, arm, seed = run.params, run.arm, run.seed
    folder = sweep_folder(arm, seed)
    shutil.rmtree(folder, ignore_errors=True)
    steps = checkpoint_steps(arm, seed)
    digests = {
        step: str(storage.read_json(step_folder(trained_folder(arm, seed), step) / RECORD)["team"]) for step in steps
    }
    begin_sweep(arm, seed, {step: digest for step, digest in digests.items() if step}, run.name)
    rows, known_metrics = [], find(params.environment.kind).metrics()
    nodes = whole(params).evaluate.ray
    with Evaluator(params, arm, "validation", params.evaluate.validation, nodes=nodes) as team:
        dataset = ("validation", str(team.manifest["digest"]))
        run.tracked.dataset(*dataset, {"path": str(PROBLEMS / team.manifest["file"])}, "validation")
        team.begin(seed, steps)
        for number, step in enumerate(steps):
            run.progress(number, len(steps), f"step {step}")
            evaluated = team.checkpoint(seed, step)
            storage.write_jsonl(folder / f"step-{step:05d}.jsonl", (r.to_json() for r in evaluated.episodes))
            overall = summarise_team(evaluated.episodes, params.evaluate.pass_k, known_metrics)["overall"]
            metrics = {f"validation/{name}": value for name, value in overall.items()}
            run.log(step, metrics)
            run.tracked.checkpoint_metrics(checkpoint(arm, seed, step), metrics, dataset)
            rows.append({"step": step, **{key: round(value, 4) for key, value in overall.items()}})
        run.progress(len(steps), len(steps), "")
    run.table("sweep", rows, f"Checkpoints of {arm} {seed} on the validation split")


if __name__ == "__main__":
    run_stage_of_arm("sweep", sweep_arm, leave_out_sweep, __doc__)
