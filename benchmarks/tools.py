"""A tool within the turn against feedback as a further turn: coding, trained on equally many sampled tokens.

    python -m benchmarks.tools FOLDER [--seeds 0 1 2]

The presets coding-two-turns and coding-tools have the same problems and models, and their agents are told the same: the
results of the visible tests.  The team with two turns is trained first, for the updates of its preset; the team with
the tool until it has sampled as many tokens.  Last checkpoints play the validation problems, and are compared by the
statistics of the chain.  The team with the tool is also compared with its base and with its own first texts, as if
they were answers.  Bases and runs are kept in FOLDER, and a run that was killed continues.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import symposium
from pipeline_lib import storage
from pipeline_lib.assembly.training import train_team
from pipeline_lib.evaluation import verdict
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.run import record_of
from pipeline_lib.evaluation.table import Episodes
from pipeline_lib.play import paired
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
    bases = {name: symposium.evaluate(symposium.load_team(experiment)) for name, experiment in experiments.items()}
    for name, base in bases.items():
        report[name]["base"] = facts(base)
    played: dict[str, dict[int, Evaluation]] = {name: {} for name in experiments}
    first: dict[int, Sequence[EpisodeRecord]] = {}
    for seed in parsed.seeds:
        budget = None
        for name, experiment in experiments.items():
            run = train(experiment, seed, budget)
            budget = Budget("tokens", used(run.rows)["tokens"])
            played[name][seed] = symposium.evaluate(symposium.load_team(run, run.steps[-1]))
            spent = {"updates": len(run.rows), "tokens": budget.amount, "executions": used(run.rows)["executions"]}
            report[name][f"seed {seed}"] = facts(played[name][seed]) | {"training": spent}
        first[seed] = of_first_texts(played[TOOL][seed])
        report[TOOL][f"seed {seed}"] |= repairs(first[seed], played[TOOL][seed].episodes)
        trained, turns = ({own: one.episodes for own, one in played[name].items()} for name in (TOOL, TURN))
        others: dict[str, Episodes] = {
            "the team with two turns": turns,
            "its base": bases[TOOL].episodes,
            "its own first texts": first,
        }
        params, metrics = experiments[TOOL].params, played[TOOL][seed].metrics
        for name, other in others.items():
            names = "the team with the tool", name
            metric = params.evaluate.metric
            found = verdict.compare(trained, other, params.verdict, metric, names, (), metrics, "validation")
            report[f"against {name}"] = found.sentence
            print(found.sentence, flush=True)
        storage.write_json(OUTPUT, report)


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


def repairs(first: Sequence[EpisodeRecord], answers: Sequence[EpisodeRecord]) -> dict[str, float]:
    """Return the shares of failed first texts whose answers pass all tests, and of passed ones whose answers fail."""
    pairs = [(a.metrics["all_passed"], b.metrics["all_passed"]) for a, b in zip(first, answers, strict=True)]
    failed, passed = ([b for a, b in pairs if a == before] for before in (0.0, 1.0))
    return {
        "repaired": round(sum(failed) / max(1, len(failed)), 4),
        "broken": round(1 - sum(passed) / max(1, len(passed)), 4),
    }


def of_first_texts(played: Evaluation) -> list[EpisodeRecord]:
    """Return the same episodes with the metrics of what every agent wrote first, before any tool answered."""
    experiment = played.team.experiment
    drawn = experiment.params.evaluate.validation
    roots = paired(experiment.problems("validation"), drawn.samples, drawn.seed)
    with played.team.open() as player:
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
        replace(record_of(root.problem, place % drawn.samples, [d]), reward=o.reward, metrics=dict(o.metrics))
        for place, (root, d, o) in enumerate(zip(roots, decisions, outcomes, strict=True))
    ]


if __name__ == "__main__":
    main()
