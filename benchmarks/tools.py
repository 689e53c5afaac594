"""A tool within the turn against feedback as a further turn: coding, trained on equally many sampled tokens.

    python -m benchmarks.tools FOLDER [--seeds 0 1 2]

The presets coding-two-turns and coding-tools have the same problems and models, and their agents are told the same: the
results of the visible tests.  The team with two turns is trained first, for the updates of its preset; the team with
the tool until it has sampled as many tokens.  Last checkpoints play the validation problems, and are compared by the
statistics of the chain.  Bases and runs are kept in FOLDER, and a run that was killed continues.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import symposium
from pipeline_lib import storage
from pipeline_lib.assembly.training import train_team
from pipeline_lib.evaluation import verdict
from pipeline_lib.training.budget import Budget, used
from pipeline_lib.training.checkpoint_folders import steps_in
from pipeline_lib.training.metrics_log import NAME as METRICS
from symposium.results import Evaluation, TrainingRun
from symposium.teams import setup_of

OUTPUT = Path("benchmarks/results/tools.json")
TURN, TOOL = "coding-two-turns", "coding-tools"


def main() -> None:
    """Train both teams by each seed, and write what came out after every seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parsed = parser.parse_args()
    experiments = {name: symposium.Experiment(parsed.folder / name, name) for name in (TURN, TOOL)}
    for name, experiment in experiments.items():
        print(name, symposium.audit(experiment), flush=True)
    report: dict[str, Any] = {name: {} for name in experiments}
    for name, experiment in experiments.items():
        report[name]["base"] = facts(symposium.evaluate(symposium.load_team(experiment)))
    played: dict[str, dict[int, Evaluation]] = {name: {} for name in experiments}
    for seed in parsed.seeds:
        budget = None
        for name, experiment in experiments.items():
            run = train(experiment, seed, budget)
            budget = Budget("tokens", used(run.rows)["tokens"])
            played[name][seed] = symposium.evaluate(symposium.load_team(run, run.steps[-1]))
            spent = {"updates": len(run.rows), **used(run.rows)}
            report[name][f"seed {seed}"] = facts(played[name][seed]) | {"training": spent}
        report["comparison"] = compared(played[TOOL], played[TURN])
        storage.write_json(OUTPUT, report)
        print(report["comparison"], flush=True)


def train(experiment: symposium.Experiment, seed: int, budget: Budget | None) -> TrainingRun:
    """Train a team for the updates of its settings, or until it has used a budget."""
    folder = experiment.place("tools", seed, None if budget is None else budget.amount, train=())
    train_team(setup_of(experiment), seed, folder, budget)
    rows: tuple[Mapping[str, float], ...] = tuple(dict(row) for row in storage.read_jsonl(folder / METRICS))
    return TrainingRun(experiment, seed, folder, tuple(steps_in(folder)), rows, "")


def facts(played: Evaluation) -> dict[str, Any]:
    """Return what a team achieved, and what it sampled for an episode."""
    episodes = played.episodes

    def mean(values: Sequence[float]) -> float:
        return round(sum(values) / len(values), 4)

    return {
        "tests_passed": mean([one.metrics["tests_passed"] for one in episodes]),
        "tokens": mean([one.tokens for one in episodes]),
        "turns": mean([one.turns for one in episodes]),
        "tool_calls": mean([one.details["tool_calls"] for one in episodes]),
    }


def compared(tool: Mapping[int, Evaluation], turn: Mapping[int, Evaluation]) -> str:
    """Return the sentence of the comparison of the two kinds of teams."""
    params, metrics = tool[min(tool)].team.experiment.params, tool[min(tool)].metrics
    a, b = ({seed: one.episodes for seed, one in found.items()} for found in (tool, turn))
    names = "the team with the tool", "the team with two turns"
    found = verdict.compare(a, b, params.verdict, params.evaluate.metric, names, (), metrics, "validation")
    return found.sentence


if __name__ == "__main__":
    main()
