"""The selected team in MLflow: tagged when it is selected, and champion if its test result allows it."""

from pipeline_lib import storage
from pipeline_lib.project import selected_checkpoint
from pipeline_lib.tracking import Checkpoint, Contender
from pipeline_lib.tracking.championship import registered_name
from pipeline_lib.training.checkpoint_folders import RECORD, read_record, step_folder
from tasks.experiment.arms import RESULTS, TEAM, trained_folder
from tasks.runtime.stage import StageRun

_AWAY = "not decided yet: the tracking server does not answer; it is decided when the server is back"


def checkpoint(arm: str, seed: int, step: int) -> Checkpoint:
    """Return a checkpoint of this project as MLflow knows it."""
    folder = step_folder(trained_folder(arm, seed), step)
    return Checkpoint(f"{arm}-{seed}-step-{step}", step, str(read_record(folder / RECORD)["team"]), str(folder))


def update_champion(run: StageRun) -> None:
    """Apply the rule of `pipeline_lib.tracking.championship` to the tested team, and show the decision."""
    result = storage.read_json(RESULTS / "verdict.json")
    metric = str(result["metric"])
    chosen = checkpoint(TEAM, *selected_checkpoint())
    tested = Contender(
        team=chosen.name,
        run=run.name,
        verdict=str(result["verdict"]),
        plan_faults="; ".join((*result["plan"]["deviations"], *result["plan"]["changed"])),
        problems=str(result["design"]["test_content"]),
        metric=metric,
        value=float(result["teams"]["selected"]["least"]),  # what was lost makes no champion
        weights=chosen.digest,
    )
    run.tracked.champion(chosen, registered_name(run.params.environment.kind), tested)
    why = run.tracked.champion_decision() or _AWAY
    run.table(
        "champion", [{"team": tested.team, metric: tested.value, "champion": why}], "The champion, and the reason"
    )
