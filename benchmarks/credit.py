"""How near each way of giving credit comes to the truth, at equal sampled tokens and at equal executions.

    python -m benchmarks.credit [--games 12] [--draws 1600]

The games are those of `benchmarks.credit_games`: embedded teams of two (the default) and of three (modules) before
training and after `TRAINED` updates, and philosophers.  For agents that read each other, the games of the default are
played one agent after the other.  Every plan is measured with the same number of actions (G = `SIZE`), and with the
largest group whose cells are at most `EXECUTIONS`; the baseline is ``leave_one_out`` throughout.  Learning curves are
those that `benchmarks.credit_learning` left.  Writes ``benchmarks/results/credit.{json,md}`` and
``docs/figures/credit.svg``.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import credit_learning
from benchmarks.credit_fidelity import Game, largest, measure
from benchmarks.credit_games import embedded_games, error_of_the_pool, philosophers_games
from benchmarks.credit_page import figure, page
from pipeline_lib import storage
from pipeline_lib.credit.plans import Aligned, Column, Cross, Latin, Pairings, Plan, Removal, Replay
from pipeline_lib.environment_kit.make import make_environment
from pipeline_lib.policies.load import load_team
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.problems.splits import load_split
from pipeline_lib.rollouts.engine import Sampling
from pipeline_lib.rollouts.make import make_engine
from pipeline_lib.settings import load_params

OUTPUT = Path("benchmarks/results/credit")
SIZE, EXECUTIONS, TRAINED = 8, 64, 8
PLANS: dict[str, Plan] = {
    "aligned": Aligned(),
    "2 pairings": Pairings(2),
    "4 pairings": Pairings(4),
    "latin": Latin(),
    "cross": Cross(),
    "column": Column(),
    "removal": Removal(),
}
#: Plans for agents that act one after the other, with their group size: in all 16, 10, 12 and 16 sampled actions.
IN_TURN: dict[str, tuple[Plan, int]] = {
    "aligned": (Aligned(), 8),
    "replay [2, 4]": (Replay((2, 4)), 8),
    "replay [4, 2]": (Replay((4, 2)), 8),
    "replay [4, 3]": (Replay((4, 3)), 12),
}


def main() -> None:
    """Measure, and write table and figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=12, help="games of each kind")
    parser.add_argument("--draws", type=int, default=1600, help="actions per agent, game and measurement")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page of what was measured")
    parsed = parser.parse_args()
    if not parsed.page:
        storage.write_json(OUTPUT.with_suffix(".json"), measure_all(parsed))
    report = storage.read_json(OUTPUT.with_suffix(".json"))
    learning = storage.read_json(credit_learning.OUTPUT) if credit_learning.OUTPUT.exists() else {}
    text = page(report, learning)
    storage.write_text(OUTPUT.with_suffix(".md"), text)
    figure(report, learning)
    print(text)


def measure_all(parsed: argparse.Namespace) -> dict[str, Any]:
    """Return the measures of every plan in every kind of game."""
    kinds, errors = embedded("coding, 2 agents", "coding", parsed)
    three_agents, further = embedded("modules, 3 agents", "modules", parsed)
    kinds, errors = kinds | three_agents, errors | further
    kinds["philosophers, 3 seats, several turns"] = three = philosophers_games(3, parsed.games, 7)
    kinds["philosophers, 3 seats, one turn"] = [Game(game.policies, game.whole, game.whole) for game in three]
    five = philosophers_games(5, parsed.games, 7)
    kinds["philosophers, 5 seats, one turn"] = [Game(game.policies, game.whole, game.whole) for game in five]
    report: dict[str, Any] = {"errors": errors, "tokens": {}, "executions": {}, "in_turn": {}}
    for kind, games in kinds.items():
        agents = len(games[0].policies)
        for name, plan in PLANS.items():
            sizes = {
                "tokens": 0 if plan.refuse(agents, SIZE) else SIZE,
                "executions": largest(plan, agents, EXECUTIONS),
            }
            for at, size in sizes.items():
                if size:
                    found = measure(games, plan, size, parsed.draws // size, 0) | {"size": float(size)}
                    report[at].setdefault(kind, {})[name] = found
        if kind.startswith("coding"):
            report["in_turn"][kind] = {
                name: measure(games, plan, size, parsed.draws // size, 0, in_turn=True) | {"size": float(size)}
                for name, (plan, size) in IN_TURN.items()
            }
        print(kind, "done", flush=True)
    return report


def embedded(name: str, preset: str, parsed: argparse.Namespace) -> tuple[dict[str, list[Game]], dict[str, float]]:
    """Return the games of a preset's team, before training and after some updates, and the error of their truth."""
    games: dict[str, list[Game]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if preset == "coding":
            params = load_params(Path("params.yaml"))
        else:
            (folder / "params.yaml").write_text(f"environment: {preset}\n")
            params = load_params(folder / "params.yaml", Path("conf"))
        prepare(params.environment.kind, params.problems, folder / "problems")
        build_base(params.policy, folder / "problems", folder / "base")
        problems, validation = load_split(folder / "problems", "train"), load_split(folder / "problems", "validation")
        sampling = Sampling(max_new_tokens=params.rollouts.max_new_tokens)
        with (
            contextlib.closing(make_environment(params.environment, params.sandbox)) as environment,
            contextlib.closing(make_engine(params.rollouts)) as engine,
        ):
            team = load_team(params.policy, folder / "base", environment.agents(problems[0]))
            for stage, updates in (("base", 0), (f"{TRAINED} updates", TRAINED)):
                if updates:
                    credit_learning.run(params, "aligned", team, environment, problems, 0, updates)
                engine.load(team.policies)
                chosen = validation[: parsed.games]
                games[f"{name}, {stage}"] = embedded_games(environment, team, engine, sampling, chosen, 0)
    return games, {name: error_of_the_pool(found) for name, found in games.items()}


if __name__ == "__main__":
    main()
