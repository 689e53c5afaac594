"""Larger tables: a curriculum from five philosophers upwards against training on the large table from the start.

    python -m benchmarks.philosophers_curriculum [--tables 10 15] [--seeds 0 1 2] [--steps 60]

Every arm starts from the same base, takes the same number of updates of the same size and is tested on the same
held-out tables of N philosophers, with the settings of the preset ``environment: philosophers``:

* base: nothing learned.
* five: trained on tables of five only; what carries over.
* direct: trained on tables of N only.
* curriculum: ``train.curriculum`` ``levels`` over five and N (and ten on the way to fifteen); a level opens when the
  upper end of the interval of the deadlock rate on validation tables is at most 10 %, and a quarter of the tables comes
  back from the levels below.

Writes a table and the numbers to benchmarks/results/, where `benchmarks.philosophers_story` draws them from.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from pathlib import Path
from statistics import mean
from typing import Any

from pipeline_lib import storage
from pipeline_lib.assembly.teams import compute_dtype, sampling_of
from pipeline_lib.environment_kit.make import make_environment
from pipeline_lib.environments.philosophers.scenarios import Scenario
from pipeline_lib.environments.philosophers.settings import ScenarioProblems
from pipeline_lib.evaluation.run import evaluate_team
from pipeline_lib.play import Player
from pipeline_lib.policies.load import load_team
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.problems.splits import load_split
from pipeline_lib.rollouts.make import make_engine
from pipeline_lib.settings import Params, load_params
from pipeline_lib.settings.train import Levels
from pipeline_lib.training.trainer import train

OUTPUT = Path("benchmarks/results/philosophers_curriculum.json")
METRICS = ("deadlock", "meals_share", "fairness", "minimum_share")
CURRICULUM = Levels(metric="deadlock", better="lower", bound=0.1, every=5, episodes=2, replay=0.25)


def settings() -> Params:
    """Return the settings of the preset, whatever params.yaml says."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "params.yaml"
        file.write_text("environment: philosophers\n")
        return load_params(file, "conf")


def tables(params: Params, sizes: tuple[int, ...], folder: Path) -> Path:
    """Prepare tables of these sizes, in equal shares."""
    problems = params.problems
    if not isinstance(problems, ScenarioProblems):
        raise SystemExit("conf/environment/philosophers.yaml: brings no scenarios")
    family = problems.family.model_copy(update={"philosophers": sizes})
    prepare("philosophers", problems.model_copy(update={"family": family}), folder)
    return folder


def test(team: Any, environment: Any, params: Params, problems: list[Scenario]) -> dict[str, float]:
    """Return the means of `METRICS` over the episodes that the stage ``test`` would play."""
    samples = params.evaluate.test
    with contextlib.closing(make_engine(params.rollouts)) as engine:
        player = Player(environment, team, engine, sampling_of(params))
        records = evaluate_team(player, problems, samples.samples, samples.seed)
    return {name: round(mean(record.metrics[name] for record in records), 4) for name in METRICS}


def arm(
    params: Params, name: str, learn: Path, held_out: list[Scenario], base: Path, seed: int, scratch: Path
) -> dict[str, Any]:
    """Train one arm with one seed and test its last checkpoint."""
    problems, validation = load_split(learn, "train"), load_split(learn, "validation")
    levels: dict[int, int] = {}
    with contextlib.closing(make_environment(params.environment, params.sandbox)) as environment:
        agents = max((environment.agents(problem) for problem in [*problems, *held_out]), key=len)
        team = load_team(params.policy, base, agents)
        began = time.perf_counter()

        def note(step: int, metrics: dict[str, float]) -> None:
            if "curriculum/level" in metrics:
                levels[step] = int(metrics["curriculum/level"])

        with contextlib.closing(make_engine(params.rollouts)) as engine:
            train(
                settings=params.train,
                sampling=sampling_of(params),
                environment=environment,
                team=team,
                engine=engine,
                problems=problems,
                validation=validation,
                seed=seed,
                scratch=scratch,
                compute=compute_dtype(params, base),
                on_step=note,
            )
        seconds = round(time.perf_counter() - began, 1)
        found = test(team, environment, params, held_out)
    left = max((step for step, level in levels.items() if level == min(levels.values())), default=0)
    print(f"{name} seed {seed}: {found}, {seconds} s, first level until step {left}", flush=True)
    return {"arm": name, "seed": seed, "seconds": seconds, "trials": levels, **found}


def compare(n: int, seeds: list[int], steps: int, folder: Path) -> list[dict[str, Any]]:
    """Return the rows of all arms for one table size."""
    params = settings()
    params = params.model_copy(update={"train": params.train.model_copy(update={"steps": steps})})
    climbing = params.model_copy(update={"train": params.train.model_copy(update={"curriculum": CURRICULUM})})
    ladder = tuple(size for size in (5, 10, 15) if size < n)
    every = tables(params, (*ladder, n), folder / "levels")
    direct = tables(params, (n,), folder / "direct")
    five = tables(params, (5,), folder / "five")
    base = folder / "base"
    build_base(params.policy, every, base)  # it has met every number, so no arm starts with unknown ones
    held_out = load_split(direct, "test")
    with contextlib.closing(make_environment(params.environment, params.sandbox)) as environment:
        agents = environment.agents(held_out[0])
        rows = [{"arm": "base", **test(load_team(params.policy, base, agents), environment, params, held_out)}]
    print(f"N={n} {rows[0]}", flush=True)
    for seed in seeds:
        for name, settled, learn in (
            ("five", params, five),
            ("direct", params, direct),
            ("curriculum", climbing, every),
        ):
            rows.append(arm(settled, name, learn, held_out, base, seed, folder / f"{name}-{seed}"))
    return [{"philosophers": n, "steps": steps, **row} for row in rows]


def main() -> None:
    """Compare, print, and write the rows; sizes measured before and not now are kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, nargs="+", default=[10, 15])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=60)
    asked = parser.parse_args()
    for n in asked.tables:
        with tempfile.TemporaryDirectory() as folder:
            rows = compare(n, asked.seeds, asked.steps, Path(folder))
        kept = storage.read_json(OUTPUT) if OUTPUT.exists() else []
        storage.write_json(OUTPUT, [row for row in kept if row["philosophers"] != n] + rows)


if __name__ == "__main__":
    main()
