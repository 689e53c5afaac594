"""Stage ``verdict``: test whether the difference is real. ``python -m flows.verdict``."""

from collections.abc import Mapping, Sequence
from typing import Any

from prefect import get_run_logger

from pipeline_lib import storage
from pipeline_lib.environment_api.metrics import describe
from pipeline_lib.environment_api.registry import find
from pipeline_lib.evaluation.effort import Point, curve
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.plan import as_planned, check_plan, read_plan
from pipeline_lib.evaluation.results import to_json
from pipeline_lib.evaluation.sentences import Caveat, counted
from pipeline_lib.evaluation.table import Episodes
from pipeline_lib.evaluation.tested_teams import cells
from pipeline_lib.evaluation.verdict import BASE, CROSS_PLAY, SELECTED, add_plan_and_looks, summarise_test
from pipeline_lib.report.alarms import endings
from pipeline_lib.settings import Params
from tasks.experiment.arms import PLAN_FILE, RESULTS, SINGLE, TEAM, TESTED, seeds_of, training_rows
from tasks.experiment.compute import compare_compute
from tasks.experiment.episode_files import read_episodes, swept, tested_file, tested_metrics
from tasks.experiment.plans import SINGLE_AGENT, UNTRAINED, UNTRAINED_SINGLE_AGENT, actual_plan, has_attempts, outside
from tasks.experiment.result_text import headline, in_markdown
from tasks.looks.look_history import plans_used, record_look_of_verdict, steps_swept
from tasks.runtime.stage import StageRun, run_stage
from tasks.runtime.tracked_run import record_verdict
from tasks.stages.champion import update_champion

#: Values of `headline` for comparing runs; the others are in ``results/verdict.json`` and in MLflow.
COMPARED = ("verdict", "metric", "base", "selected", "difference", "low", "high", "p", "p_for_looks", "looks")


def judge(run: StageRun) -> str:
    """Write ``results/verdict.json`` (everything) and ``results/metrics.json`` (few); return the three lines."""
    params, selection = run.params, storage.read_json(RESULTS / "selection.json")[TEAM]
    seeds = seeds_of(params, TEAM)
    steps = {seed: int(selection["seeds"][str(seed)]["step"]) for seed in seeds}
    baselines: dict[str, Episodes] = {}
    if single := seeds_of(params, SINGLE):
        baselines[SINGLE_AGENT] = {seed: read_episodes(tested_file(SINGLE, "selected", seed)) for seed in single}
        baselines[UNTRAINED_SINGLE_AGENT] = read_episodes(tested_file(SINGLE, "base"))
    for protocol in params.evaluate.baselines:
        baselines[UNTRAINED[protocol]] = read_episodes(tested_file(TEAM, protocol))
    if params.evaluate.cross_play:
        baselines[CROSS_PLAY] = {seed: read_episodes(tested_file(TEAM, "guests", seed)) for seed in seeds}
    tested = summarise_test(
        selected={seed: read_episodes(tested_file(TEAM, "selected", seed)) for seed in seeds},
        base=read_episodes(tested_file(TEAM, "base")),
        last={seed: read_episodes(tested_file(TEAM, "last", seed)) for seed in seeds},
        baselines=baselines,
        selected_steps=steps,
        last_steps={seed: int(selection["seeds"][str(seed)]["last"]) for seed in seeds},
        evaluate=params.evaluate,
        verdict=params.verdict,
        validation={seed: swept(TEAM, seed)[steps[seed]] for seed in seeds},
        outside=outside(params),
        metrics=tested_metrics(params.environment.kind),
        has_attempts=has_attempts(params),
        chosen_by=find(params.environment.kind).chosen_by if params.evaluate.equal_effort else "",
    )
    if single:
        compute = compare_compute(params)
        against_single = tested["comparisons"][SINGLE_AGENT]
        against_single |= {"compute": compute, "sentence": f"{against_single['sentence']} {compute['sentence']}"}
    if params.evaluate.equal_effort:
        tested["equal_effort"]["curves"] = to_json(effort_curves(params))
    if params.evaluate.cross_play:
        mixed = {seed: [*read_episodes(tested_file(TEAM, "selected", seed)), *with_guests(seed)] for seed in seeds}
        info = describe(params.evaluate.metric, tested_metrics(params.environment.kind))
        tested["cross_play"] = to_json(cells(mixed, params.evaluate.metric, info, 1 - params.verdict.alpha))
    updates = {seed: training_rows(TEAM, seed) for seed in seeds}
    ended = endings(updates)
    caveats = [
        *counted(ended, "training run ended by a monitor", "training runs ended by monitors"),
        *counted(selection["notes"], "note on the choice of checkpoints", "notes on the choice of checkpoints"),
    ]
    carried = {**plans_used(params), "the selection": selection["plan"]}
    result = bound(params, run.name, tested, carried, caveats) | {"ended_by_monitors": ended}
    storage.write_json(RESULTS / "verdict.json", result)
    numbers = headline(result)
    storage.write_json(RESULTS / "metrics.json", compared(numbers, [row for rows in updates.values() for row in rows]))
    record_verdict(run.whole, result)
    run.markdown("verdict", in_markdown(result))
    return "\n".join(result["lines"])


def effort_curves(params: Params) -> dict[str, list[Point]]:
    """Return what teams and single agents come to with more and more attempts, by name of the team."""
    metric, kind = params.evaluate.metric, params.environment.kind
    info, by = describe(metric, tested_metrics(kind)), find(kind).chosen_by
    costs = storage.read_json(TESTED / "cost.json")
    curves = {}
    for arm, trained, untrained in ((TEAM, SELECTED, BASE), (SINGLE, SINGLE_AGENT, UNTRAINED_SINGLE_AGENT)):
        files = {seed: tested_file(arm, "selected", seed) for seed in seeds_of(params, arm)}
        teams = {seed: read_episodes(path) for seed, path in files.items()}
        played = sum(len(records) for records in teams.values())
        seconds = sum(costs[path.stem]["seconds"] for path in files.values()) / played
        level = 1 - params.verdict.alpha
        curves[trained] = curve(teams, metric, info, by, level, seconds)
        # The base is played first, so its seconds are also those of starting engine and sandbox: they are left out.
        curves[untrained] = curve(read_episodes(tested_file(arm, "base")), metric, info, by, level)
    return curves


def with_guests(seed: int) -> list[EpisodeRecord]:
    """Return the test episodes of a run's team with guests, of the other runs and of the base."""
    return [record for kind in ("guests", "base-guests") for record in read_episodes(tested_file(TEAM, kind, seed))]


def judge_and_crown(run: StageRun) -> None:
    """Compare the selected team with everything else, say it in three lines, and make it champion if it may be."""
    get_run_logger().info("%s", judge(run))
    update_champion(run)


def bound(
    params: Params,
    run: str,
    tested: Mapping[str, Any],
    carried: Mapping[str, Mapping[str, Any]],
    caveats: Sequence[Caveat],
) -> dict[str, Any]:
    """Add to a test's result the plan check and all looks at its problems; it becomes one of these looks.

    Args:
        params: the present settings.
        run: name of the run.
        tested: of `summarise_test`.
        carried: the plans under which its inputs were made, by name of the input.
        caveats: further ones, beside those of the comparisons, the plan and the looks.
    """
    plan = read_plan(PLAN_FILE)
    done = actual_plan(params, tested["design"], checkpoints=steps_swept(params))
    looks, changed = record_look_of_verdict(params, as_planned(done, plan), run, tested)
    check = check_plan(done, plan, tested["design"]["selected"], carried, changed)
    design = {**done.to_json(), "selected": tested["design"]["selected"]}
    return add_plan_and_looks({**tested, "design": design}, check, looks, caveats)


def compared(numbers: Mapping[str, Any], updates: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return the numbers of `headline` for comparing runs, in the order of ``dvc metrics show``.

    ``updates`` has the metrics of every update of all training runs of the team.
    """
    seconds = sum(row["time/step_s"] for row in updates)
    return {**{name: numbers[name] for name in COMPARED}, "updates": len(updates), "seconds": round(seconds, 1)}


if __name__ == "__main__":
    run_stage("verdict", judge_and_crown)
