"""Learning curves of the embedded default by way of giving credit, at equally many sampled actions; and seconds.

    python -m benchmarks.credit_learning curves [--seeds 0 1 2] [--updates 25] [--plans aligned cross]
    python -m benchmarks.credit_learning speed [--updates 20]

Settings are those of ``params.yaml``.  For learning curves, every joint action on a problem is executed once and
remembered for all runs of the process: it has the same verdict each time, and seconds are not what is measured.  For
speed nothing is remembered, not by the sandbox either, and runs of the same updates follow each other in turn.  Run it
again with other seeds to add them.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline_lib import storage
from pipeline_lib.environment_kit.make import make_environment
from pipeline_lib.policies.load import load_team
from pipeline_lib.policies.policy import Team
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.problems.splits import load_split
from pipeline_lib.rollouts.engine import Sampling
from pipeline_lib.rollouts.make import make_engine
from pipeline_lib.settings import Params, load_params
from pipeline_lib.settings.train import TrainSettings
from pipeline_lib.training.trainer import train

OUTPUT = Path("benchmarks/results/credit_learning.json")
KEPT = (
    *("reward/mean", "metrics/tests_passed", "actions/tokens", "executions/count", "executions/cells"),
    *("time/generation_s", "time/execution_s", "time/update_s", "time/step_s"),
)
Rows = list[dict[str, float]]


def main() -> None:
    """Train, and add what came out to the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("curves", "speed"))
    parser.add_argument("--plans", nargs="+", default=["aligned", "cross"])
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10)))
    parser.add_argument("--updates", type=int, default=25)
    parser.add_argument("--base", type=Path)
    parser.add_argument("--problems", type=Path)
    parsed = parser.parse_args()
    params = load_params(Path("params.yaml"))
    report: dict[str, Any] = storage.read_json(OUTPUT) if OUTPUT.exists() else {}
    with tempfile.TemporaryDirectory() as temporary:
        problems, base = parsed.problems or Path(temporary, "problems"), parsed.base or Path(temporary, "base")
        if parsed.problems is None:
            prepare(params.environment.kind, params.problems, problems)
        if parsed.base is None:
            build_base(params.policy, problems, base)
        known: dict[Any, Any] = {}
        for seed in parsed.seeds:
            for plan in parsed.plans:
                # A sandbox of its own each: it remembers verdicts, and would make whoever comes second look fast.
                with contextlib.closing(make_environment(params.environment, params.sandbox)) as environment:
                    if parsed.part == "curves":
                        remember(environment, known)
                    todo = load_split(problems, "train")
                    team = load_team(params.policy, base, environment.agents(todo[0]))
                    rows = run(params, plan, team, environment, todo, seed, parsed.updates)
                report.setdefault(parsed.part, {}).setdefault(plan, {})[str(seed)] = rows
                storage.write_json(OUTPUT, report)
                print(f"{plan}, seed {seed}: reward {rows[-1]['reward/mean']:.2f}", flush=True)


def run(
    params: Params, plan: str, team: Team, environment: Any, problems: Sequence[Any], seed: int, updates: int
) -> Rows:
    """Train a team, and return what is kept of every update."""
    changes = {"steps": updates, "checkpoint_every": updates, "credit": {"kind": plan}}
    settings = TrainSettings.model_validate(params.train.model_dump() | changes)
    rows: Rows = []
    with tempfile.TemporaryDirectory() as scratch, contextlib.closing(make_engine(params.rollouts)) as engine:
        train(
            settings=settings,
            sampling=Sampling(max_new_tokens=params.rollouts.max_new_tokens),
            environment=environment,
            team=team,
            engine=engine,
            problems=problems,
            seed=seed,
            scratch=Path(scratch),
            on_step=lambda step, metrics: rows.append(
                {name: round(metrics[name], 5) for name in KEPT if name in metrics}
            ),
        )
    return rows


def remember(environment: Any, known: dict[Any, Any]) -> None:
    """Make an environment of one turn execute no joint action on a problem that is ``known``, and add those it does."""
    execute = environment.step

    def step(states: Sequence[Any], joint_actions: Sequence[Sequence[str]]) -> list[Any]:
        keys = [(state.problem.id, *texts) for state, texts in zip(states, joint_actions, strict=True)]
        new = {key: place for place, key in enumerate(keys) if key not in known}
        if new:
            places = list(new.values())
            found = execute([states[place] for place in places], [joint_actions[place] for place in places])
            known.update(zip(new, found, strict=True))
        return [known[key] for key in keys]

    environment.step = step


if __name__ == "__main__":
    main()
