"""Stage ``select``: the selected checkpoint of each run, by the rule in the plan. ``python -m flows.select``."""

from pipeline_lib import storage
from pipeline_lib.environment_api.registry import find
from pipeline_lib.evaluation.plan import check_plan, read_plan
from pipeline_lib.evaluation.selection import select
from tasks.experiment.arms import ARMS, PLAN_FILE, RESULTS, TEAM, seeds_of
from tasks.experiment.episode_files import swept
from tasks.experiment.plans import actual_plan
from tasks.runtime.stage import StageRun, run_stage
from tasks.stages.champion import checkpoint


def select_checkpoints(run: StageRun) -> None:
    """Write ``results/selection.json``: by arm, the selection and the plan it followed; tag the team's in MLflow."""
    params, plan = run.params, read_plan(PLAN_FILE)
    written = {}
    for arm in ARMS:
        if not seeds_of(params, arm):
            continue
        episodes = {seed: swept(arm, seed) for seed in seeds_of(params, arm)}
        base = next(iter(episodes.values()))[0]
        trained = {seed: {step: rows for step, rows in steps.items() if step} for seed, steps in episodes.items()}
        selection = select(trained, base, params.evaluate, params.verdict, find(params.environment.kind).metrics())
        written[arm] = {**selection.to_json(), "plan": plan.to_json()}
        if arm == TEAM:
            written[arm]["plan_check"] = check_plan(actual_plan(params, selection.design), plan).to_json()
            run.tracked.selected(checkpoint(arm, selection.champion_seed, selection.champion_step))
            rows = [{"seed": s, "step": c.step, "mean": c.mean, "last": c.last} for s, c in selection.seeds.items()]
            run.table("selection", rows, f"Rule {selection.rule}, metric {selection.metric}")
            run.log(0, {f"selected/step/{seed}": float(choice.step) for seed, choice in selection.seeds.items()})
    storage.write_json(RESULTS / "selection.json", written)


if __name__ == "__main__":
    run_stage("select", select_checkpoints)
