"""The report: the results of all stages on one page, and as series for ``dvc plots``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_lib import storage
from pipeline_lib.environment_api.metrics import describe
from pipeline_lib.environment_api.registry import find
from pipeline_lib.evaluation.attempts import turn_gains
from pipeline_lib.evaluation.contributions import contributions, subteam_means
from pipeline_lib.evaluation.metrics import summarise_team
from pipeline_lib.evaluation.schemes import scheme_use
from pipeline_lib.evaluation.verdict import BASE, LAST
from pipeline_lib.problems.splits import load_manifest
from pipeline_lib.report.data import About, ReportData
from pipeline_lib.report.page import build_report
from pipeline_lib.report.series import write_plots
from tasks.experiment.arms import IDENTITIES, PROBLEMS, RESULTS, SINGLE, TEAM, seeds_of
from tasks.experiment.comparisons import SINGLE_AGENT, UNTRAINED, UNTRAINED_SINGLE_AGENT, notes
from tasks.experiment.episode_files import TESTED, read_episodes, swept, tested_file
from tasks.experiment.machine import machine
from tasks.experiment.training_files import training_rows
from tasks.experiment.verdict_text import in_markdown
from tasks.identity.run import identity_tags
from tasks.identity.stages import whole

if TYPE_CHECKING:
    from pipeline_lib.settings import Params
    from tasks.runtime.stage import StageRun

REPORT = Path("report")


def make_report(params: Params, run: StageRun) -> None:
    """Write ``report/index.html`` and ``report/plots/``, and keep both with the whole run in MLflow."""
    data = gather(params, run.name)
    own = find(params.environment.kind).figures(data)
    build_report(data, REPORT / "index.html", own)
    write_plots(data, REPORT / "plots", own)
    run.whole.artifact(REPORT)
    run.whole.describe("\n\n".join(data.verdict["lines"]), "index.html")
    run.whole.summary(
        {
            f"cost/{part.replace(', ', ' ')}/{name}": value
            for part, cost in data.costs.items()
            for name, value in cost.items()
        }
    )
    run.markdown("report", f"{in_markdown(data.verdict)}\n\n`{REPORT / 'index.html'}`")


def gather(params: Params, name: str) -> ReportData:
    """Read the outputs of all stages.

    Raises:
        FileNotFoundError: a stage has not run.
    """
    task = find(params.environment.kind)
    metrics = task.metrics()
    files = tested_files(params)
    metric = params.evaluate.metric
    measured = seeds_of(params, TEAM) if params.evaluate.contributions else ()
    subteams = [read_episodes(tested_file(TEAM, "subteams", seed)) for seed in measured]
    swept_episodes = {seed: swept(TEAM, seed) for seed in seeds_of(params, TEAM)}
    level = 1 - params.verdict.alpha
    base = read_episodes(tested_file(TEAM, "base"))
    selected = {seed: read_episodes(tested_file(TEAM, "selected", seed)) for seed in seeds_of(params, TEAM)}
    every = [episode for episodes in selected.values() for episode in episodes]
    return ReportData(
        name=name,
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
        first_episodes=first_episodes(params),
        about=about(params),
        by_problem={
            team: summarise_team([episode for path in paths for episode in read_episodes(path)])["problems"]
            for team, paths in files.items()
        },
        files={team: [path.as_posix() for path in paths] for team, paths in files.items()},
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


def first_episodes(params: Params) -> dict[str, list[dict[str, Any]]]:
    """Return the first test episode of each problem, of the base and of a selected team."""
    files = tested_files(params)
    return {
        name: [episode.to_json() for episode in read_episodes(files[name][0]) if episode.sample == 0]
        for name in ("base", "selected")
    }


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
        own = agent.model_dump(exclude_defaults=True, exclude_none=True)
        adapter += f"; {name} with " + ", ".join(f"{key} {value}" for key, value in own.items())
    looks = storage.read_json(RESULTS / "verdict.json").get("looks") or {}
    history = looks.get("history") or [{}]
    return About(
        task=params.environment.kind,
        model=f"{model}, {weights}{adapter}",
        problems=f"{params.problems.kind} problems ({sizes})",
        tested=str(history[-1].get("time", ""))[:10],
        machine=machine(),
    )


def tested_files(params: Params) -> dict[str, list[Path]]:
    """Return the files of the test episodes of every team, by the verdict's names; a file per training seed."""
    team, single = seeds_of(params, TEAM), seeds_of(params, SINGLE)
    found = {
        "selected": [tested_file(TEAM, "selected", seed) for seed in team],
        BASE: [tested_file(TEAM, "base")],
        LAST: [tested_file(TEAM, "last", seed) for seed in team],
    }
    if single:
        found[SINGLE_AGENT] = [tested_file(SINGLE, "selected", seed) for seed in single]
        found[UNTRAINED_SINGLE_AGENT] = [tested_file(SINGLE, "base")]
    return found | {UNTRAINED[protocol]: [tested_file(TEAM, protocol)] for protocol in params.evaluate.baselines}


def costs(params: Params) -> dict[str, dict[str, float]]:
    """Return seconds and sampled tokens of training and test, by part."""
    found: dict[str, dict[str, float]] = {}
    for arm in (TEAM, SINGLE):
        rows: list[dict[str, Any]] = [row for seed in seeds_of(params, arm) for row in training_rows(arm, seed)]
        if rows:
            found[f"training, {SINGLE_AGENT if arm == SINGLE else arm}"] = {
                "seconds": sum(row["time/step_s"] for row in rows),
                "tokens": sum(row["actions/tokens"] for row in rows),
            }
    tested = storage.read_json(TESTED / "cost.json").values()
    found["test"] = {key: sum(cost[key] for cost in tested) for key in ("seconds", "tokens")}
    return found
