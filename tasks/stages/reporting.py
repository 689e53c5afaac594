"""The report: everything the stages wrote, on one page, and as series for ``dvc plots``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_lib import storage
from pipeline_lib.evaluation.metrics import summarise_team
from pipeline_lib.problems.splits import load_manifest
from pipeline_lib.report.data import ReportData
from pipeline_lib.report.page import build_report
from pipeline_lib.report.series import write_plots
from pipeline_lib.seam.registry import find
from tasks.experiment.arms import IDENTITIES, PROBLEMS, RESULTS, SINGLE, TEAM, seeds_of
from tasks.experiment.comparisons import SINGLE_AGENT, notes
from tasks.experiment.episode_files import TESTED, read_episodes, swept, tested_file
from tasks.experiment.machine import machine
from tasks.identity.run import identity_tags
from tasks.identity.stages import whole

if TYPE_CHECKING:
    from pipeline_lib.settings import Params
    from tasks.runtime.stage import StageRun

REPORT = Path("report")


def make_report(params: Params, run: StageRun) -> None:
    """Write ``report/index.html`` and ``report/plots/``, and keep both with the run in MLflow."""
    data = gather(params, run.name)
    own = find(params.environment.kind).figures(data)
    build_report(data, REPORT / "index.html", own)
    write_plots(data, REPORT / "plots", own)
    run.tracked.artifact(REPORT, "report")
    run.markdown("report", f"**{data.verdict['verdict']}** {data.verdict['sentence']}\n\n`{REPORT / 'index.html'}`")


def gather(params: Params, name: str) -> ReportData:
    """Read the outputs of all stages.

    Raises:
        FileNotFoundError: a stage has not run.
    """
    metrics = find(params.environment.kind).metrics()
    return ReportData(
        name=name,
        metrics=metrics,
        train={seed: training_rows(TEAM, seed) for seed in seeds_of(params, TEAM)},
        selection=storage.read_json(RESULTS / "selection.json")[TEAM],
        verdict=storage.read_json(RESULTS / "verdict.json"),
        sweep={
            seed: {
                step: summarise_team(episodes, params.evaluate.pass_k, metrics)["overall"]
                for step, episodes in swept(TEAM, seed).items()
            }
            for seed in seeds_of(params, TEAM)
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
    )


def first_episodes(params: Params) -> dict[str, list[dict[str, Any]]]:
    """Return the first test episode of each problem, of the base and of a selected team."""
    files = {"base": tested_file(TEAM, "base"), "selected": tested_file(TEAM, "selected", seeds_of(params, TEAM)[0])}
    return {
        name: [episode.to_json() for episode in read_episodes(path) if episode.sample == 0]
        for name, path in files.items()
    }


def about(params: Params) -> str:
    """Return in a sentence what was trained, on what, when it was tested, and on what machine this page was made."""
    manifest = load_manifest(PROBLEMS)
    sizes = ", ".join(f"{entry['count']:,} {split}" for split, entry in manifest["splits"].items())
    policy = params.policy
    model = (
        f"the embedded model ({policy.layers} layers of width {policy.hidden_size}, made from nothing)"
        if policy.kind == "embedded"
        else " and ".join(policy.models)
    )
    weights = (
        "one set of weights for all agents" if policy.parameters == "shared" else "weights of its own for each agent"
    )
    adapter = f", {policy.adapter.kind} adapters" if policy.adapter.kind != "none" else ""
    looks = storage.read_json(RESULTS / "verdict.json").get("looks") or {}
    history = looks.get("history") or [{}]
    day = str(history[-1].get("time", ""))[:10]
    tested = f"Tested on {day} (UTC); this" if day else "This"
    return (
        f"Task: {params.environment.kind}. Model: {model}, {weights}{adapter}. "
        f"Problems: {params.problems.kind} ({sizes}). {tested} page was made on {machine()}."
    )


def training_rows(arm: str, seed: int) -> list[dict[str, float]]:
    """Return the metrics of every update of a run."""
    return list(storage.read_jsonl(RESULTS / "train" / f"{arm}-{seed}.jsonl"))


def costs(params: Params) -> dict[str, dict[str, float]]:
    """Return seconds and sampled tokens of training and test, by part."""
    found: dict[str, dict[str, float]] = {}
    for arm in (TEAM, SINGLE):
        rows: list[dict[str, Any]] = [row for seed in seeds_of(params, arm) for row in training_rows(arm, seed)]
        if rows:
            found[f"training, {arm}"] = {
                "seconds": sum(row["time/step_s"] for row in rows),
                "tokens": sum(row["actions/tokens"] for row in rows),
            }
    tested = storage.read_json(TESTED / "cost.json").values()
    found["test"] = {key: sum(cost[key] for cost in tested) for key in ("seconds", "tokens")}
    return found
