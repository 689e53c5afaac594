"""Stage ``report``: one page for people, and the same series for ``dvc plots``.  ``python -m flows.report``."""

import os

from pipeline_lib import storage
from pipeline_lib.environment_api.metrics import describe
from pipeline_lib.environment_api.registry import find
from pipeline_lib.evaluation.episodes import summarise_team
from pipeline_lib.evaluation.schemes import scheme_use
from pipeline_lib.evaluation.tested_teams import contributions, subteam_means, turn_gains
from pipeline_lib.evaluation.verdict import BASE, CROSS_PLAY, LAST, SELECTED
from pipeline_lib.problems.splits import load_manifest
from pipeline_lib.processor import machine
from pipeline_lib.report.data import About, ReportData
from pipeline_lib.report.page import build_report
from pipeline_lib.report.series import write_plots
from pipeline_lib.report.viewer import TestedTeam
from pipeline_lib.settings import Params
from tasks.experiment.arms import IDENTITIES, PROBLEMS, REPORT, RESULTS, SINGLE, TEAM, seeds_of, training_rows
from tasks.experiment.episode_files import read_episodes, swept, tested_file
from tasks.experiment.plans import SINGLE_AGENT, UNTRAINED, UNTRAINED_SINGLE_AGENT, notes
from tasks.experiment.result_text import costs, in_markdown
from tasks.identity.run import NOTE, TITLE, identity_tags
from tasks.identity.stages import whole
from tasks.runtime.stage import StageRun, run_stage
from tasks.runtime.tracked_run import record_costs, record_report


def make_report(run: StageRun) -> None:
    """Write ``report/index.html`` and ``report/plots/``, and keep both with the whole run in MLflow."""
    data = gather(run.params, run.name)
    figures = find(run.params.environment.kind).figures(data)
    build_report(data, REPORT / "index.html", figures)
    write_plots(data, REPORT / "plots", figures)
    record_report(run.whole, REPORT, data.verdict["lines"])
    record_costs(run.whole, data.costs)
    run.markdown("report", f"{in_markdown(data.verdict)}\n\n`{REPORT / 'index.html'}`")


def gather(params: Params, name: str) -> ReportData:
    """Read the outputs of all stages; raises FileNotFoundError if a stage has not run."""
    task = find(params.environment.kind)
    metrics = task.metrics()
    tested = tested_teams(params)
    metric = params.evaluate.metric
    measured = seeds_of(params, TEAM) if params.evaluate.contributions else ()
    subteams = [read_episodes(tested_file(TEAM, "subteams", seed)) for seed in measured]
    swept_episodes = {seed: swept(TEAM, seed) for seed in seeds_of(params, TEAM)}
    level = 1 - params.verdict.alpha
    base = next(team.episodes for team in tested if team.name == BASE)
    selected = {team.seed: team.episodes for team in tested if team.name == SELECTED and team.seed is not None}
    every = [episode for episodes in selected.values() for episode in episodes]
    return ReportData(
        name=name,
        called=os.environ.get(TITLE, ""),
        note=os.environ.get(NOTE, ""),
        metrics=metrics,
        train={seed: training_rows(TEAM, seed) for seed in seeds_of(params, TEAM)},
        selection=storage.read_json(RESULTS / "selection.json")[TEAM],
        verdict=storage.read_json(RESULTS / "verdict.json"),
        sweep={
            seed: {
                step: summarise_team(episodes, params.evaluate.pass_k, metrics)["overall"]
                for step, episodes in found.items()
            }
            for seed, found in swept_episodes.items()
        },
        baseline_train={SINGLE_AGENT: {seed: training_rows(SINGLE, seed) for seed in seeds_of(params, SINGLE)}}
        if seeds_of(params, SINGLE)
        else {},
        costs=costs(params),
        plan=storage.read_json(RESULTS / "plan.json"),
        audit=storage.read_json(RESULTS / "audit.json"),
        identity={
            **identity_tags(),
            "problems": storage.file_digest(PROBLEMS / "manifest.json"),
            **{
                f"identity of {path.stem}": storage.file_digest(path)[:16] for path in sorted(IDENTITIES.glob("*.json"))
            },
        },
        settings=whole(params).model_dump(mode="json"),
        notes=notes(params),
        about=about(params),
        tested=tested,
        terms=task.terms(params.environment),
        team_terms=task.team_terms(params.environment),
        schemes=task.schemes(),
        cooperation=scheme_use(base, selected, swept_episodes, metric, level),
        turn_gains={
            team: turn_gains(episodes, metric, metrics, level)
            for team, episodes in (("base", base), ("selected", every))
        },
        contributions=contributions(subteams, metric, describe(metric, metrics), level),
        subteams=subteam_means(subteams, metric),
        contribution_episodes=params.evaluate.contributions,
    )


def task_name(kind: str) -> str:
    """Return what people call an environment: its name, or of an import path the name of the class."""
    return kind.rpartition(":")[2]


def about(params: Params) -> About:
    """Return a description of model, problems, date of the test, and the machine on which the page is made."""
    manifest = load_manifest(PROBLEMS)
    sizes = ", ".join(f"{entry['count']:,} {split}" for split, entry in manifest["splits"].items())
    policy = params.policy
    model = (
        f"the embedded model ({policy.layers} layers of width {policy.hidden_size}, built from nothing)"
        if policy.kind == "embedded"
        else " and ".join(policy.models)
    )
    weights = (
        "one set of weights for all agents" if policy.parameters == "shared" else "separate weights for each agent"
    )
    adapter = f", {policy.adapter.kind} adapters" if policy.adapter.kind != "none" else ""
    for name, agent in policy.agents.items():
        differences = agent.model_dump(exclude_defaults=True, exclude_none=True)
        adapter += f"; {name} with " + ", ".join(f"{key} {value}" for key, value in differences.items())
    looks = storage.read_json(RESULTS / "verdict.json").get("looks") or {}
    history = looks.get("history") or [{}]
    return About(
        task=task_name(params.environment.kind),
        model=f"{model}, {weights}{adapter}",
        problems=f"problems of the kind {params.problems.kind} ({sizes})",
        tested=str(history[-1].get("time", ""))[:10],
        machine=machine(),
    )


def tested_teams(params: Params) -> list[TestedTeam]:
    """Read the test episodes of every team, by the verdict's names."""
    selection = storage.read_json(RESULTS / "selection.json")

    def of(name: str, arm: str, which: str, seed: int | None = None, step: int | None = None) -> TestedTeam:
        return TestedTeam(name, seed, step, read_episodes(tested_file(arm, which, seed)))

    def trained(name: str, arm: str, which: str) -> list[TestedTeam]:
        chosen, key = selection[arm]["seeds"], "step" if which == "selected" else "last"
        return [of(name, arm, which, seed, int(chosen[str(seed)][key])) for seed in seeds_of(params, arm)]

    teams = [*trained(SELECTED, TEAM, "selected"), of(BASE, TEAM, "base"), *trained(LAST, TEAM, "last")]
    if seeds_of(params, SINGLE):
        teams += [*trained(SINGLE_AGENT, SINGLE, "selected"), of(UNTRAINED_SINGLE_AGENT, SINGLE, "base")]
    if params.evaluate.cross_play:
        teams += [of(CROSS_PLAY, TEAM, "guests", seed) for seed in seeds_of(params, TEAM)]
    return teams + [of(UNTRAINED[protocol], TEAM, protocol) for protocol in params.evaluate.baselines]


if __name__ == "__main__":
    run_stage("report", make_report)
