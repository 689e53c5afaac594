"""The selected team in MLflow: tagged when it is selected, and champion if its test has won that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline_lib import storage
from pipeline_lib.tracking import Contender
from pipeline_lib.training.checkpoint_folders import RECORD, read_record, step_folder
from tasks.experiment.arms import RESULTS, TEAM, trained_folder

if TYPE_CHECKING:
    from pipeline_lib.settings import Params
    from tasks.runtime.stage import StageRun

_AWAY = "not decided yet: the tracking server is away, and it is decided when it is back"


def make_known(run: StageRun, arm: str, seed: int, step: int) -> str:
    """Make a checkpoint known to the tracked run, which may not be the one that trained it; return its name there."""
    folder, name = step_folder(trained_folder(arm, seed), step), f"{arm}-{seed}-step-{step}"
    if (folder / RECORD).exists():  # weights that are not here cannot be pointed to
        run.tracked.checkpoint(name, step, str(read_record(folder / RECORD)["team"]), str(folder.absolute()))
    return name


def registered_name(params: Params) -> str:
    """Return the name in MLflow's registry under which the champions of an environment are versions."""
    return f"symposium-{params.environment.kind.replace(':', '.')}"


def crown(params: Params, run: StageRun) -> None:
    """Let the tested team become champion by the rule of `pipeline_lib.tracking.championship`; show what came of it."""
    result = storage.read_json(RESULTS / "verdict.json")
    selection = storage.read_json(RESULTS / "selection.json")[TEAM]
    metric = str(result["metric"])
    seed, step = int(selection["champion_seed"]), int(selection["champion_step"])
    tested = Contender(
        team=make_known(run, TEAM, seed, step),
        run=run.name,
        verdict=str(result["verdict"]),
        plan_faults="; ".join((*result["plan"]["deviations"], *result["plan"]["changed"])),
        problems=str(result["design"]["test_content"]),
        metric=metric,
        value=float(result["teams"]["selected"]["metrics"][metric]),
        weights=str(read_record(step_folder(trained_folder(TEAM, seed), step) / RECORD)["team"]),
    )
    run.tracked.champion(registered_name(params), tested)
    why = run.tracked.champion_decided() or _AWAY
    run.table("champion", [{"team": tested.team, metric: tested.value, "champion": why}], "Who is champion, and why")
