"""How many agent-steps per second the table moves, beside DPBench's own environment in the same run.

    python -m benchmarks.philosophers_speed [--dpbench FOLDER]

FOLDER holds the unpacked wheel of dpbench (``pip download --no-deps dpbench==0.2.1`` and ``unzip``); only its rules are
loaded, so none of its dependencies is needed.  Both sides play the same scripted policy on the published condition
(ring, N philosophers, 30 steps), on one core, and the clock counts this process's CPU seconds, so other load does not
matter much.  Before the clock starts both play the same random actions, and every state has to agree; eaters never
say RELEASE there, because on that point the published rules have a fault that ours do not.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_lib.environments.philosophers.scenarios import make_graph
from pipeline_lib.environments.philosophers.scripted import Script, script
from pipeline_lib.environments.philosophers.table import RELEASE, WAIT, Table, make_table, step

HORIZON = 30


def load_dpbench(folder: Path) -> tuple[Any, Any]:
    """Return dpbench's modules ``core.environment`` and ``core.types`` from an unpacked wheel."""
    if not (folder / "dpbench" / "core" / "environment.py").is_file():
        raise SystemExit(f"{folder}: holds no dpbench/core/environment.py; unpack the wheel of dpbench there")
    # An empty parent package: the real one imports a graph framework that the rules do not need.
    parent = types.ModuleType("dpbench")
    parent.__path__ = [str(folder / "dpbench")]
    sys.modules["dpbench"] = parent
    return importlib.import_module("dpbench.core.environment"), importlib.import_module("dpbench.core.types")


def ours(n: int, policy: Script, batch: int, seconds: float) -> float:
    """Return agent-steps per CPU second of the vectorised table."""
    start = lay(n, batch)
    rng = np.random.default_rng(0)
    done, began = 0, time.process_time()
    while time.process_time() - began < seconds:
        table = start
        while not table.done.all():
            done += n * int((~table.done).sum())
            table = step(table, policy.act(table, rng))
    return done / (time.process_time() - began)


def theirs(n: int, modules: tuple[Any, Any], seconds: float) -> float:
    """Return agent-steps per CPU second of DPBench's environment, with the hierarchy policy in plain Python."""
    environment, kinds = modules
    actions = kinds.Action
    done, began = 0, time.process_time()
    while time.process_time() - began < seconds:
        state = environment.create_initial_state(n)
        for _ in range(HORIZON):
            decisions = []
            for philosopher in state.philosophers:
                i = philosopher.id
                left, right = state.forks[i], state.forks[(i + 1) % n]
                right_first = i == n - 1
                wants_right = philosopher.has_left_fork or (right_first and not philosopher.has_right_fork)
                fork, action = (right, actions.GRAB_RIGHT) if wants_right else (left, actions.GRAB_LEFT)
                decisions.append(kinds.AgentDecision(i, action if fork.is_free else actions.WAIT))
            result = environment.step(state, decisions)
            state = result.new_state
            done += n
            if result.deadlock:
                break
    return done / (time.process_time() - began)


def lay(n: int, batch: int) -> Table:
    """Return a batch of published tables."""
    return make_table(make_graph("ring", n), np.tile(np.arange(n), (batch, 1)), HORIZON)


def compare_states(n: int, modules: tuple[Any, Any], episodes: int) -> int:
    """Play random actions on both sides; return how many states were compared, or exit at a difference."""
    environment, kinds = modules
    names = [kinds.Action.WAIT, kinds.Action.GRAB_LEFT, kinds.Action.GRAB_RIGHT, kinds.Action.RELEASE]
    rng = np.random.default_rng(n)
    table = lay(n, episodes)
    states = [environment.create_initial_state(n) for _ in range(episodes)]
    over = [False] * episodes
    compared = 0
    while not table.done.all():
        codes = rng.integers(0, 4, (n, episodes), dtype=np.int8)
        codes[(table.eating > 0) & (codes == RELEASE)] = WAIT
        table = step(table, codes)
        for e in range(episodes):
            if over[e]:
                continue
            decisions = [kinds.AgentDecision(i, names[codes[i, e]]) for i in range(n)]
            result = environment.step(states[e], decisions)
            states[e], over[e] = result.new_state, result.deadlock
            seen = [(p.has_left_fork, p.has_right_fork, p.meals_eaten) for p in states[e].philosophers]
            expected = list(
                zip(table.left[:, e].tolist(), table.right[:, e].tolist(), table.meals[:, e].tolist(), strict=True)
            )
            if seen != expected or over[e] != bool(table.deadlocked[e]):
                raise SystemExit(f"N = {n}, episode {e}, step {int(table.time[e])}: {seen} there, {expected} here")
            compared += 1
    return compared


def main() -> None:
    """Measure, print a table, and write JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--dpbench", type=Path, help="folder of the unpacked wheel")
    parser.add_argument("--sizes", type=int, nargs="+", default=[5, 10, 50])
    parser.add_argument("--batch", type=int, default=4096, help="episodes side by side")
    parser.add_argument("--seconds", type=float, default=2.0, help="CPU seconds per measurement")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    modules = load_dpbench(arguments.dpbench) if arguments.dpbench else None
    rows = []
    for n in arguments.sizes:
        row: dict[str, Any] = {"philosophers": n}
        for name in ("hierarchy", "random", "time_slots"):
            row[name] = ours(n, script(name), arguments.batch, arguments.seconds)
        if modules is not None:
            row["states_compared"] = compare_states(n, modules, 200)
            row["dpbench"] = theirs(n, modules, arguments.seconds)
            row["ratio"] = row["hierarchy"] / row["dpbench"]
        rows.append(row)
        print("  ".join(f"{key} {value:,.0f}" for key, value in row.items()))
    if modules is None:
        print("DPBench was not given (--dpbench), so there is no ratio.")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
