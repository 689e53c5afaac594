"""Teams of two presets, trained on equally many sampled tokens, on test problems of their own.

    python -m benchmarks.equal_tokens coding-tools coding-two-turns FOLDER          a tool, or a further turn
    python -m benchmarks.equal_tokens modules-orchestrated modules FOLDER           a lead, or fixed roles

The teams of the second preset are trained for its updates, those of the first until they have sampled as many tokens as
the one of the same seed.  Both have the same problems, which are not those of the shipped presets.  When all are
trained, last checkpoints play the test split, once, and the first are compared with the second and with their base by
the statistics of the chain; teams with a tool also with their own first texts, as if these were answers.  Bases and
runs are kept in FOLDER, and a run that was killed continues.  The numbers are in results/equal-tokens-<first>.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import symposium
from pipeline_lib import storage
from pipeline_lib.assembly.training import train_team
from pipeline_lib.evaluation.comparison import measure
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.run import evaluate_team, record_of, refuse_losses
from pipeline_lib.evaluation.table import Episodes
from pipeline_lib.evaluation.verdict import decide
from pipeline_lib.play import paired
from pipeline_lib.problems.splits import load_split
from pipeline_lib.training.budget import Budget, used
from pipeline_lib.training.checkpoint_folders import steps_in
from pipeline_lib.training.metrics_log import NAME as METRICS
from symposium.results import TrainingRun
from symposium.teams import Team, setup_of

RESULTS = Path("benchmarks/results")
#: Seed of the problems, and of the shipped ones, whose validation and test problems are left out.
PROBLEMS = {"seed": 3, "apart_from": 7}
SEEDS = (0, 1, 2)


def main() -> None:
    """Train both teams by each seed, play the test split, and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("first", "second"):
        parser.add_argument(name, help="name of a preset in conf/environment")
    parser.add_argument("folder", type=Path)
    parsed = parser.parse_args()
    # The second preset says how many tokens there are.
    names = (parsed.second, parsed.first)
    experiments = {name: symposium.Experiment(parsed.folder / name, name, problems=PROBLEMS) for name in names}
    runs: dict[str, dict[int, TrainingRun]] = {name: {} for name in names}
    for name, experiment in experiments.items():
        print(name, symposium.audit(experiment), flush=True)
    for seed in SEEDS:
        budget = None
        for name, experiment in experiments.items():
            run = runs[name][seed] = train(experiment, seed, budget)
            budget = Budget("tokens", used(run.rows)["tokens"])
            print(name, run, budget, flush=True)
    report: dict[str, Any] = {
        "command": f"python -m benchmarks.equal_tokens {parsed.first} {parsed.second}",
        "problems": f"seed {PROBLEMS['seed']}, apart from those of seed {PROBLEMS['apart_from']}",
    }
    bases, teams, trained = {}, {}, {}
    for name, experiment in experiments.items():
        bases[name] = play(symposium.load_team(experiment))
        teams[name] = {seed: symposium.load_team(run, run.steps[-1]) for seed, run in runs[name].items()}
        trained[name] = {seed: play(team) for seed, team in teams[name].items()}
        metric = experiment.params.evaluate.metric
        report[name] = {"base": facts(bases[name], metric)} | {
            f"seed {seed}": facts(trained[name][seed], metric) | spent(run) for seed, run in runs[name].items()
        }
    first = experiments[parsed.first]
    others: dict[str, Episodes] = {parsed.second: trained[parsed.second], "its base": bases[parsed.first]}
    if getattr(first.params.environment, "tools", None) is not None:
        others["its own first texts"] = {seed: of_first_texts(team) for seed, team in teams[parsed.first].items()}
    settings, metrics = first.params.verdict, first.metrics
    found = decide(
        {
            other: measure(trained[parsed.first], episodes, settings, metric, (parsed.first, other), (), metrics)
            for other, episodes in others.items()
        }
    )
    report["comparisons"] = {other: comparison.sentence for other, comparison in found.items()}
    storage.write_json(RESULTS / f"equal-tokens-{parsed.first}.json", report)
    print(*report["comparisons"].values(), sep="\n")


def train(experiment: symposium.Experiment, seed: int, budget: Budget | None) -> TrainingRun:
    """Train a team for the updates of its settings, or until it has used a budget."""
    amount = None if budget is None else budget.amount
    folder = experiment.place(
        "equal-tokens", seed, amount, environment=(), problems=(), policy=(), rollouts=(), sandbox=(), train=()
    )
    train_team(setup_of(experiment), seed, folder, budget)
    rows = tuple(dict(row) for row in storage.read_jsonl(folder / METRICS))
    return TrainingRun(experiment, seed, folder, tuple(steps_in(folder)), rows, "")


def play(team: Team) -> list[EpisodeRecord]:
    """Return the episodes of a team on the test split."""
    params = team.experiment.params
    problems, drawn = load_split(team.experiment.problems_folder(), "test"), params.evaluate.test
    with team.open() as player:
        episodes = evaluate_team(player, problems, drawn.samples, drawn.seed)
    refuse_losses(episodes, params.sandbox.infra_error_share, team.title)
    return episodes


def facts(episodes: Sequence[EpisodeRecord], metric: str) -> dict[str, Any]:
    """Return what a team achieved, and what it sampled for an episode."""
    return {
        metric: round(fmean(one.metrics[metric] for one in episodes), 4),
        "tokens": round(fmean(one.tokens for one in episodes), 1),
        "turns": round(fmean(one.turns for one in episodes), 2),
        "tool_calls": round(fmean(one.details.get("tool_calls", 0.0) for one in episodes), 2),
    }


def spent(run: TrainingRun) -> dict[str, Any]:
    """Return what a training run used."""
    compute = used(run.rows)
    return {"training": {"updates": len(run.rows), "tokens": compute["tokens"], "executions": compute["executions"]}}


def of_first_texts(team: Team) -> list[EpisodeRecord]:
    """Return the same episodes with the metrics of what every agent wrote first, before any tool answered."""
    drawn = team.experiment.params.evaluate.test
    roots = paired(load_split(team.experiment.problems_folder(), "test"), drawn.samples, drawn.seed)
    with team.open() as player:
        environment = player.environment
        decisions = player.play(roots).decisions
        states = [environment.start(root.problem, root.chance.start()) for root in roots]
        # The first of an agent's texts is the last to be put in.
        texts = [
            dict(reversed([(name, action.text) for name, action in zip(d.agents, d.actions, strict=True)]))
            for d in decisions
        ]
        first = [
            [own.get(name, "") for name in environment.agents(root.problem)]
            for own, root in zip(texts, roots, strict=True)
        ]
        outcomes = environment.step(states, first)
    return [
        replace(record_of(root.problem, place % drawn.samples, [d], False), reward=o.reward, metrics=dict(o.metrics))
        for place, (root, d, o) in enumerate(zip(roots, decisions, outcomes, strict=True))
    ]


if __name__ == "__main__":
    main()
