"""Pretrained models on this machine at the table: the published conditions, beside players without a model.

    python -m benchmarks.philosophers_pretrained --models smollm2-135m FOLDER_OF_QWEN

Each model plays 30 episodes (`--episodes`) with five philosophers who move at the same time, and as many in which they
move one after another: a ring, P0 to P4, 30 steps, temperature 0.7, the default prompt, no messages; nobody is trained.
A model is what ``policy.models`` takes; it speaks through its own chat template; all philosophers share its weights.
A condition takes minutes to hours on two cores; every fifteen episodes are kept, and the same command continues.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.philosophers_frontier import PUBLISHED
from benchmarks.training import ROOT
from pipeline_lib import storage
from pipeline_lib.environments.philosophers.runtime import PhilosophersEnvironment, make_reward
from pipeline_lib.environments.philosophers.scenarios import dpbench
from pipeline_lib.environments.philosophers.scripted import SCRIPTS, scripted_records
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.run import evaluate_team
from pipeline_lib.play import Player
from pipeline_lib.policies.computing import right_threads
from pipeline_lib.policies.load import load_team
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.rollouts import Sampling
from pipeline_lib.rollouts.make import make_engine
from pipeline_lib.settings.compose import compose
from pipeline_lib.settings.params import Params
from pipeline_lib.training.curriculum import wilson

OUTPUT = Path("benchmarks/results/philosophers_pretrained.json")
MODES = ("simultaneous", "sequential")
PHILOSOPHERS, EPISODES, PIECE, TEMPERATURE, LONGEST = 5, 30, 15, 0.7, 128
WITHOUT_A_MODEL = ("random", "polite_random", "parity", "optimal")


def main() -> None:
    """Play what is missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", required=True, help="what policy.models takes")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--episodes", type=int, default=EPISODES, help=f"of each condition, in steps of {PIECE}")
    parser.add_argument("--folder", type=Path, default=Path(".symposium/philosophers"), help="of finished pieces")
    parsed = parser.parse_args()
    cells: dict[str, Any] = storage.read_json(OUTPUT)["cells"] if OUTPUT.exists() else {}
    for mode in parsed.modes:
        for name in WITHOUT_A_MODEL:
            cells[f"{name}, {mode}"] = summarise(scripted(name, mode), mode)
        for model in parsed.models:
            records, seconds = played(model, mode, parsed.folder, parsed.episodes)
            cells[f"{Path(model).name.lower()}, {mode}"] = summarise(records, mode) | {"seconds": round(seconds)}
    storage.write_json(OUTPUT, {"temperature": TEMPERATURE, "longest": LONGEST, "cells": cells})
    storage.write_text(OUTPUT.with_suffix(".md"), table(cells))
    print(table(cells))


def settings(model: str, mode: str) -> Params:
    """Return the settings of one condition."""
    sections = {
        "environment": {"kind": "philosophers", "mode": mode, "prompt": "default"},
        "problems": {"kind": "scenarios", "published_test": [PHILOSOPHERS], "sizes": {"train": 8, "validation": 8}},
        "policy": {"kind": "pretrained", "models": [model], "dtype": "auto", "parameters": "shared"},
        "seeds": {"single_agent": []},
        "train": {"groups": "episodes"},
        "rollouts": {"kind": "transformers", "max_new_tokens": LONGEST},
        "evaluate": {"metric": "meals_share", "baselines": []},
    }
    return compose(sections, ROOT / "conf")


def played(model: str, mode: str, folder: Path, episodes: int) -> tuple[list[EpisodeRecord], float]:
    """Return the episodes of a model and the seconds that they took; plays those that no file holds yet."""
    params = settings(model, mode)
    environment = PhilosophersEnvironment(params.environment)
    scenario = dpbench(PHILOSOPHERS)
    here = folder / f"{Path(model).name.lower()}-{storage.digest([params.policy.model_dump(mode='json'), mode])[:8]}"
    prepare(params.environment.kind, params.problems, here / "problems")
    if not (here / "base").exists():
        build_base(params.policy, here / "problems", here / "base")
    records: list[EpisodeRecord] = []
    seconds = 0.0
    with contextlib.ExitStack() as stack:
        player: Player | None = None
        for first in range(0, episodes, PIECE):
            kept = here / f"episodes-{first:02d}.json"
            if not kept.exists():
                if player is None:
                    team = load_team(params.policy, here / "base", environment.agents(scenario))
                    engine = stack.enter_context(contextlib.closing(make_engine(params.rollouts, params.policy)))
                    stack.enter_context(right_threads(team))
                    engine.load(team.policies)
                    player = Player(environment, team, engine, Sampling(TEMPERATURE, max_new_tokens=LONGEST))
                began = time.perf_counter()
                # The seed differs from piece to piece: a piece draws as if it were alone.
                found = evaluate_team(player, [scenario], PIECE, seed=first, keep_texts=True)
                spent = time.perf_counter() - began
                storage.write_json(kept, {"seconds": spent, "records": [record.to_json() for record in found]})
                print(f"{model}, {mode}: {first + PIECE} of {episodes} episodes, {spent:.0f} s", flush=True)
            piece = storage.read_json(kept)
            records += [EpisodeRecord.from_json(row) for row in piece["records"]]
            seconds += piece["seconds"]
    return records, seconds


def scripted(name: str, mode: str) -> list[EpisodeRecord]:
    """Return as many episodes of a player without a model."""
    params = settings("smollm2-135m", mode)
    reward = make_reward(params.environment.reward)
    return scripted_records(SCRIPTS[name], [dpbench(PHILOSOPHERS)], reward, EPISODES, sequential=mode == "sequential")


def summarise(records: Sequence[EpisodeRecord], mode: str) -> dict[str, Any]:
    """Return the means of the episodes, with Wilson's interval (95 %) of the share that ended in a deadlock."""
    mean = {name: float(np.mean([record.metrics[name] for record in records])) for name in records[0].metrics}
    low, high = wilson(mean["deadlock"], len(records))
    return {
        "mode": mode,
        "episodes": len(records),
        "different": len({(*record.details["meals"], record.details["steps"]) for record in records}),
        "deadlock": mean["deadlock"],
        "interval": [low, high],
        "meals": mean["meals"],
        "meals_share": mean["meals_share"],
        "starving": mean["starvation"],
        "waits": mean["wait_share"],
        "unreadable": mean["invalid_share"],
        "reward": float(np.mean([record.reward for record in records])),
        "steps": float(np.mean([record.turns for record in records])),
        "tokens": sum(record.tokens for record in records),
        "cut_off": sum(record.details.get("cut_off", 0) for record in records),
        "requests": sum(record.details.get("requests", 0) for record in records),
    }


def table(cells: dict[str, Any]) -> str:
    """Return the table as Markdown."""
    columns = "player, mode, episodes, deadlock, meals, of the optimum, starving, waits, unreadable, steps"
    lines = [
        f"# Pretrained models at the table of {PHILOSOPHERS}\n",
        f"Published prompt, temperature {TEMPERATURE:g}, at most {LONGEST} tokens an action, no messages; nobody was "
        "trained. A deadlock ends an episode; else it has 30 steps (one after another: 30 moves).\n",
        f"| {columns.replace(', ', ' | ')} |",
        "|---|---|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, row in sorted(cells.items(), key=lambda item: MODES.index(item[1]["mode"])):
        low, high = row["interval"]
        lines.append(
            f"| {name.rpartition(', ')[0]} | {row['mode']} | {row['episodes']} "
            f"| {row['deadlock']:.0%} [{low:.0%}, {high:.0%}] | {row['meals']:.1f} | {row['meals_share']:.0%} "
            f"| {row['starving']:.0%} | {row['waits']:.0%} | {row['unreadable']:.0%} | {row['steps']:.1f} |"
        )
    for name, (episodes, deadlock, _) in PUBLISHED.items():
        low, high = wilson(deadlock, episodes)
        lines.append(
            f"| {name}, published | simultaneous | {episodes} | {deadlock:.0%} [{low:.0%}, {high:.0%}] | | | | | | |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
