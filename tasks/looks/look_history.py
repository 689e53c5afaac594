"""What a verdict reports about changes of its plan and about all looks at its test split."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline_lib import storage
from pipeline_lib.evaluation.look_correction import correct_for_looks, not_counted
from pipeline_lib.evaluation.looks import Look, Sweep, changed_plans, seen_in_validation
from pipeline_lib.evaluation.plan import Plan
from pipeline_lib.settings import Params
from tasks.experiment.arms import ARMS, TEAM, TESTED, seeds_of, sweep_folder
from tasks.looks.looking import MADE_OF, episodes_seen, when_and_who
from tasks.looks.records import LOOKS, SWEEPS, RecordsError, counted_since, record, records


def plans_used(params: Params) -> dict[str, dict[str, Any]]:
    """Return the plans, as JSON, under which the inputs of a verdict (sweeps and test) were made, by input."""
    swept = {(arm, seed): _made_of(sweep_folder(arm, seed)) for arm in ARMS for seed in seeds_of(params, arm)}
    plans = {f"the sweep of {arm} {seed}": made_of["plan"] for (arm, seed), made_of in swept.items()}
    return {**plans, "the test": _made_of(TESTED)["plan"]}


def steps_swept(params: Params) -> dict[str, list[int]]:
    """Return the steps of the team's checkpoints that were swept, by training seed."""
    return {
        str(seed): [int(step) for step in _made_of(sweep_folder(TEAM, seed))["checkpoints"]]
        for seed in seeds_of(params, TEAM)
    }


def record_look_of_verdict(
    params: Params, done: Plan, run: str, result: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Record the look on which a verdict is based, and return what the verdict reports about looks.

    Args:
        params: the settings.
        done: the plan that was executed, under which the look is recorded; training runs that a monitor ended count as
            planned (`as_planned`).
        run: name of the run.
        result: of `summarise_test`.

    Returns:
        ``looks`` of the result, and sentences about parts of the plan that were changed after results had been seen.
    """
    made_of = _made_of(TESTED)
    problems, plan = tuple(made_of["problems"]), done.to_json()
    look = Look(plan, made_of["weights"], problems, episodes_seen(), **when_and_who(run))
    try:
        record(LOOKS, look.identity, look.to_json())
        since = counted_since()
        every_look = [Look.from_json(value) for value in records(LOOKS)]
        sweeps = [Sweep.from_json(value) for value in records(SWEEPS)]
    except RecordsError as error:
        return not_counted(str(error)), []
    folders = [sweep_folder(arm, seed) for arm in ARMS for seed in seeds_of(params, arm)]
    swept = {digest for folder in folders for digest in _made_of(folder)["checkpoints"].values()}
    said = [*changed_plans(every_look, sweeps, look, swept), *seen_in_validation(problems, sweeps)]
    return correct_for_looks(every_look, look, result, done.alpha, since), said


def _made_of(folder: Path) -> dict[str, Any]:
    made_of: dict[str, Any] = storage.read_json(folder / MADE_OF)
    return made_of
