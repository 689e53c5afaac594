"""Frontier models at the table: M models x 3 table sizes x 30 episodes, on any OpenAI-compatible server.

    python -m benchmarks.philosophers_frontier --url https://host/v1 --models a b --price-prompt 1 --price-action 4

The conditions are the published ones: a ring, P0 to P{N-1}, 30 simultaneous steps, temperature 0.7 (seven models and
sizes 5, 10 and 15 are the study's 630 episodes).  Before anything is asked the cost is estimated and, if it is not
zero, confirmed with --yes; afterwards the cost is what the server counted.  A killed run continues with the same
command: finished cells are kept as files, unfinished ones as the actions already paid for.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_lib.environments.philosophers.runtime import PhilosophersEnvironment
from pipeline_lib.environments.philosophers.scenarios import Scenario, dpbench
from pipeline_lib.environments.philosophers.settings import PhilosophersSettings
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.run import evaluate_team
from pipeline_lib.play import Player
from pipeline_lib.policies.policy import Team, remote_policy
from pipeline_lib.rollouts.engine import Sampling
from pipeline_lib.rollouts.openai_engine import OpenAIEngine, OpenAIServer
from pipeline_lib.storage import digest, read_json, write_json, write_text
from pipeline_lib.training.curriculum import wilson

#: Published results at N = 5, simultaneous, default prompt (arXiv 2602.13255): episodes, deadlock share, fairness.
PUBLISHED = {
    "claude-opus-4.5": (20, 0.55, 0.619),
    "gpt-5.2": (20, 0.25, 0.576),
    "grok-4.1": (20, 0.70, 0.578),
    "gemini-2.5-flash": (30, 0.90, 0.830),
    "llama-4-maverick": (30, 0.767, 0.842),
    "random": (30, 0.133, 0.568),
}

#: Tokens of an action in the published runs, for the estimate; and characters per token of English prompts.
ACTION_TOKENS, CHARACTERS_PER_TOKEN = 65, 4.0


@dataclass(frozen=True)
class Cell:
    """One model at one table size."""

    model: str
    scenario: Scenario
    episodes: int

    def path(self, folder: Path, settings: dict[str, Any]) -> Path:
        """Return where the cell's records are kept; other settings have other files."""
        name = digest([self.model, self.scenario.to_json(), self.episodes, settings])[:16]
        return folder / f"{self.model.replace('/', '_')}-{self.scenario.philosophers}-{name}.json"


def estimate(
    cells: Sequence[Cell], environment: PhilosophersEnvironment, prices: tuple[float, float]
) -> dict[str, float]:
    """Return calls, tokens and cost if no episode ends early; the prompt is counted as the first one is."""
    calls = prompt = 0.0
    for cell in cells:
        turns = cell.scenario.horizon * max(1, environment.settings.message_rounds)
        asked = cell.episodes * turns * cell.scenario.philosophers
        calls += asked
        prompt += asked * len(environment.observe(environment.start(cell.scenario), 0)) / CHARACTERS_PER_TOKEN
    actions = calls * ACTION_TOKENS
    cost = (prompt * prices[0] + actions * prices[1]) / 1e6
    return {"calls": calls, "prompt_tokens": prompt, "action_tokens": actions, "cost": cost}


def play(
    cell: Cell,
    environment: PhilosophersEnvironment,
    server: OpenAIServer,
    sampling: Sampling,
    prices: tuple[float, float],
    seed: int,
) -> dict[str, Any]:
    """Play one cell and return its records and what it cost."""
    agents = environment.agents(cell.scenario)
    engine = OpenAIEngine(server)
    try:
        team = Team({agent: remote_policy(agent, cell.model) for agent in agents}, {agent: agent for agent in agents})
        engine.load(team.policies)
        player = Player(environment, team, engine, sampling)
        records = evaluate_team(player, [cell.scenario], cell.episodes, seed)
        counters = engine.counters
        return {
            "model": cell.model,
            "philosophers": cell.scenario.philosophers,
            "records": [record.to_json() for record in records],
            "cost": (counters.prompt_tokens * prices[0] + counters.generated_tokens * prices[1]) / 1e6,
            "prompt_tokens": counters.prompt_tokens,
            "action_tokens": counters.generated_tokens,
        }
    finally:
        engine.close()


def summarise(cell: dict[str, Any]) -> dict[str, Any]:
    """Return one row of the report."""
    records = [EpisodeRecord.from_json(row) for row in cell["records"]]
    mean = {name: float(np.mean([r.metrics[name] for r in records])) for name in records[0].metrics}
    low, high = wilson(mean["deadlock"], len(records))
    distinct = len({(*r.details["meals"], r.details["steps"]) for r in records})
    return {
        "model": cell["model"],
        "N": cell["philosophers"],
        "episodes": len(records),
        "different": distinct,
        "deadlock": f"{mean['deadlock']:.0%} [{low:.0%}, {high:.0%}]",
        "meals": f"{mean['meals']:.1f}",
        "of bound": f"{mean['meals_share']:.0%}",
        "fairness": f"{mean['fairness']:.2f}",
        "starving": f"{mean['starvation']:.0%}",
        "waits": f"{mean['wait_share']:.0%}",
        "unreadable": f"{mean['invalid_share']:.1%}",
        "reward": f"{np.mean([r.reward for r in records]):.3f}",
        "cost": f"{cell['cost']:.2f}",
    }


def report(cells: Sequence[dict[str, Any]]) -> str:
    """Return the results and the published ones as Markdown."""
    rows = [summarise(cell) for cell in cells]
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    lines += ["| " + " | ".join(str(value) for value in row.values()) + " |" for row in rows]
    lines += ["", "Published at N = 5 (fairness there is 1 where nobody eats, here 0):", ""]
    lines += ["| model | episodes | deadlock | fairness |", "|---|---|---|---|"]
    for model, (n, deadlock, fairness) in PUBLISHED.items():
        low, high = wilson(deadlock, n)
        lines.append(f"| {model} | {n} | {deadlock:.0%} [{low:.0%}, {high:.0%}] | {fairness:.2f} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Estimate, play what is missing, and report."""
    parser = argparse.ArgumentParser(description="Frontier models at the table")
    parser.add_argument("--url", required=True, help="where the API begins, for example http://127.0.0.1:8000/v1")
    parser.add_argument("--models", nargs="+", required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=[5, 10, 15])
    parser.add_argument("--episodes", type=int, default=30)
    parser.add_argument("--prompt", default="default")
    parser.add_argument("--message-rounds", type=int, default=0)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--max-new-tokens", type=int, default=1024)
    parser.add_argument("--key-variable", default="OPENAI_API_KEY", help="'' for a server that needs no key")
    parser.add_argument("--price-prompt", type=float, default=0.0, help="per million prompt tokens")
    parser.add_argument("--price-action", type=float, default=0.0, help="per million generated tokens")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path(".symposium/frontier"))
    parser.add_argument("--yes", action="store_true", help="spend the estimated cost")
    chosen = parser.parse_args(arguments)
    settings = PhilosophersSettings.model_validate({"prompt": chosen.prompt, "message_rounds": chosen.message_rounds})
    environment = PhilosophersEnvironment(settings)
    cells = [Cell(model, dpbench(n), chosen.episodes) for model in chosen.models for n in chosen.sizes]
    identity = {
        "environment": settings.model_dump(mode="json"),
        "url": chosen.url,
        "temperature": chosen.temperature,
        "max_new_tokens": chosen.max_new_tokens,
        "seed": chosen.seed,
    }
    missing = [cell for cell in cells if not cell.path(chosen.folder, identity).exists()]
    prices = (chosen.price_prompt, chosen.price_action)
    expected = estimate(missing, environment, prices)
    print(
        f"{len(cells)} cells, {len(cells) - len(missing)} of them finished; at most {expected['calls']:,.0f} calls, "
        f"about {expected['prompt_tokens'] / 1e6:.2f} M prompt and {expected['action_tokens'] / 1e6:.2f} M action "
        f"tokens, cost about {expected['cost']:.2f}"
    )
    if expected["cost"] > 0 and not chosen.yes:
        print("nothing was asked; repeat the command with --yes to spend that")
        return 1
    for cell in missing:
        server = OpenAIServer(
            chosen.url, (cell.model,), key_variable=chosen.key_variable, cache=str(chosen.folder / "actions")
        )
        sampling = Sampling(chosen.temperature, max_new_tokens=chosen.max_new_tokens)
        played = play(cell, environment, server, sampling, prices, chosen.seed)
        write_json(cell.path(chosen.folder, identity), played)
        print(f"{cell.model}, {cell.scenario.philosophers} philosophers: cost {played['cost']:.2f}")
    done = [read_json(cell.path(chosen.folder, identity)) for cell in cells]
    text = report(done)
    write_text(chosen.folder / "report.md", text)
    print(f"{text}\ncost in all: {sum(cell['cost'] for cell in done):.2f}; written to {chosen.folder / 'report.md'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
