"""What the monitors of training cost: their share of the seconds and of the joint actions of training.

    python -m benchmarks.monitors_cost [--updates 60] [--seeds 0 1 2] [--threads 1]

Trains the embedded default with the settings of ``params.yaml``, and times the three things that monitors do: read the
experience of an update, play episodes without an agent, and judge.  All are inside of the same training, so other work
on the machine slows both alike.  Writes benchmarks/results/monitors_cost.json.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import pkgutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from pipeline_lib import storage
from pipeline_lib.environment_api.registry import find
from pipeline_lib.environment_kit.make import make_environment
from pipeline_lib.monitors import End
from pipeline_lib.policies.load import load_team
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.problems.splits import load_split
from pipeline_lib.rollouts.engine import Sampling
from pipeline_lib.rollouts.make import make_engine
from pipeline_lib.settings import Params, load_params
from pipeline_lib.settings.train import TrainSettings
from pipeline_lib.training.trainer import train

OUTPUT = Path("benchmarks/results/monitors_cost.json")

#: What monitors do, by the name under which training calls it.
PARTS = {
    "reading the experience": "pipeline_lib.training.step.evidence",
    "episodes without an agent": "pipeline_lib.training.trainer.ablate",
    "judging": "pipeline_lib.training.stopping.judge",
}


def main() -> None:
    """Train, print the table and keep its numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=1)
    parsed = parser.parse_args()
    torch.set_num_threads(parsed.threads)
    params = load_params(Path("params.yaml"))
    with tempfile.TemporaryDirectory() as temporary:
        problems, base = Path(temporary, "problems"), Path(temporary, "base")
        prepare(params.environment.kind, params.problems, problems)
        build_base(params.policy, problems, base)
        runs = [measure(params, problems, base, seed, parsed.updates) for seed in parsed.seeds]
    storage.write_json(OUTPUT, {"updates": parsed.updates, "threads": parsed.threads, "runs": runs})
    whole = sum(run["training"] for run in runs)
    print("| part | seconds per update | share of training |\n|---|---:|---:|")
    for name in (*PARTS, "together"):
        own = sum(run[name] for run in runs)
        print(f"| {name} | {own / parsed.updates / len(runs):.4f} | {own / whole:.2%} |")
    print(f"| training | {whole / parsed.updates / len(runs):.4f} | 100 % |")


def measure(params: Params, problems: Path, base: Path, seed: int, updates: int) -> dict[str, float]:
    """Return the seconds of a training run of ``updates`` updates (``training``), and those of every part in it."""
    seconds = dict.fromkeys(PARTS, 0.0)
    task = find(params.environment.kind)
    info = task.metrics()[task.primary]
    settings = TrainSettings.model_validate(params.train.model_dump() | {"steps": updates, "checkpoint_every": updates})
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory())
        engine = stack.enter_context(contextlib.closing(make_engine(params.rollouts)))
        environment = stack.enter_context(contextlib.closing(make_environment(params.environment, params.sandbox)))
        todo = load_split(problems, "train")
        team = load_team(params.policy, base, environment.agents(todo[0]))
        for name, place in PARTS.items():
            stack.enter_context(timed(name, place, seconds))
        began = time.perf_counter()
        train(
            settings=settings,
            sampling=Sampling(max_new_tokens=params.rollouts.max_new_tokens),
            environment=environment,
            team=team,
            engine=engine,
            problems=todo,
            seed=seed,
            scratch=Path(scratch),
            end=End(task.primary, info.low, info.high),
        )
        whole = time.perf_counter() - began
    return {**seconds, "together": sum(seconds.values()), "training": whole}


@contextlib.contextmanager
def timed(name: str, place: str, seconds: dict[str, float]) -> Iterator[None]:
    """Add the seconds of every call of the function at ``place`` to ``seconds[name]``."""
    function: Callable[..., Any] = pkgutil.resolve_name(place)

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        began = time.perf_counter()
        try:
            return function(*args, **options)
        finally:
            seconds[name] += time.perf_counter() - began

    with mock.patch(place, call):
        yield


if __name__ == "__main__":
    main()
