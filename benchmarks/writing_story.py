"""The tables of docs/writing.md, made from runs of the chain.

    python -m benchmarks.writing_story summary=FOLDER introduction=FOLDER paper=FOLDER

Each FOLDER is a copy of the project in which an experiment was run: ``symposium run -S environment=writing``, the same
with ``-S problems.task=introduction``, and with ``-S environment.reward.kind=paper -S audit.override=...``.  The names
are the caller's.  What every tested team told, and what it took, is written to benchmarks/results/writing-<name>.md.

Tokens are those of the tested episodes.  CPU time is measured here, on one thread: the first held-out problems are
answered one after another and agent after agent.  *All* adds the agents up; *one after another* takes, of agents that
speak at the same time, the slowest: what is waited for if each has a core, or a machine, of its own.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from pipeline_lib import storage
from pipeline_lib.environment_kit.make import make_environment
from pipeline_lib.environments.writing.task import METRICS
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.policies.embedded import single_core_numerics
from pipeline_lib.policies.load import load_team
from pipeline_lib.policies.policy import Team
from pipeline_lib.problems.splits import load_split
from pipeline_lib.protocols import PromptRequest, TurnInput, make_protocol
from pipeline_lib.rollouts.engine import Engine, Request, Sampling
from pipeline_lib.rollouts.make import make_engine
from pipeline_lib.settings import Params, load_params
from pipeline_lib.training.checkpoint_folders import step_folder
from pipeline_lib.training.checkpoints import load_checkpoint
from tasks.experiment.arms import (
    BASE,
    PROBLEMS,
    RESULTS,
    environment_section,
    trained_folder,
)

OUTPUT = Path("benchmarks/results")
#: Metrics in the tables, and how many problems are timed.
SHOWN = (
    "coverage", "all_told", "inventions", "copied", "fitting", "style", "joints", "complete",
    "published", "published_structure", "published_coherence", "published_consistency",
)  # fmt: skip
TIMED = 24


def tested() -> dict[str, list[EpisodeRecord]]:
    """Return the test episodes of every team, by the name of its file."""
    files = sorted((RESULTS / "test").glob("*.jsonl"))
    return {path.stem: [EpisodeRecord.from_json(row) for row in storage.read_jsonl(path)] for path in files}


def quality(teams: dict[str, list[EpisodeRecord]]) -> list[str]:
    """Return a table of what every team told."""
    lines = ["| team | " + " | ".join(METRICS[name].label for name in SHOWN) + " | reward |"]
    lines.append("|---" * (len(SHOWN) + 2) + "|")
    for name, episodes in teams.items():
        values = [f"{mean(e.metrics[metric] for e in episodes):.1%}" for metric in SHOWN]
        lines.append(f"| {name} | {' | '.join(values)} | {mean(e.reward or 0.0 for e in episodes):.3f} |")
    return lines


def timed(team: Team, environment: Any, protocol: str, engine: Engine, sampling: Sampling) -> tuple[float, float]:
    """Return the median CPU seconds that a problem takes: of all agents together, and one after another."""
    totals, waits = [], []
    for number, problem in enumerate(load_split(PROBLEMS, "test")[:TIMED]):
        agents, state = environment.agents(problem), environment.start(problem)
        spent: list[float] = []  # the seconds of all agents in a round, and of the slowest, in turn

        def speak(
            asks: Sequence[PromptRequest],
            agents: Sequence[str] = agents,
            spent: list[float] = spent,
            number: int = number,
        ) -> list[str]:
            said, each = [], []
            for ask in asks:
                policy = team.policy_of(agents[ask.agent])
                began = time.process_time()
                request = Request(policy.name, policy.encode(ask.prompt), 1, number)
                said.append(engine.generate([request], sampling)[0][0].text)
                each.append(time.process_time() - began)
            spent.extend((sum(each), max(each)))
            return said

        everybody = tuple(range(len(agents)))
        seat = TurnInput(agents, everybody, tuple(environment.observe(state, agent) for agent in everybody))
        make_protocol(protocol).act([seat], speak)
        totals.append(sum(spent[::2]))
        waits.append(sum(spent[1::2]))
    return median(totals), median(waits)


def seconds(params: Params, names: Sequence[str]) -> Iterator[tuple[str, float, float]]:
    """Yield what a problem takes each tested team; see `timed`."""
    sampling = Sampling(max_new_tokens=params.rollouts.max_new_tokens)
    chosen = storage.read_json(RESULTS / "selection.json")
    for name in names:
        arm, _, which = name.partition("-")
        kind, _, seed = which.rpartition("-")
        section = environment_section(params, arm)
        with contextlib.closing(make_environment(section, params.sandbox)) as environment:
            team = load_team(params.policy, BASE, environment.agents(load_split(PROBLEMS, "test")[0]))
            if kind in ("selected", "last"):
                step = int(chosen[arm]["seeds"][seed]["step" if kind == "selected" else "last"])
                load_checkpoint(step_folder(trained_folder(arm, int(seed)), step), team)
            protocol = which if which in params.evaluate.baselines else "decentralised"
            with contextlib.closing(make_engine(params.rollouts)) as engine, single_core_numerics():
                engine.load(team.policies)
                yield (name, *timed(team, environment, protocol, engine, sampling))


def cost(params: Params, teams: dict[str, list[EpisodeRecord]]) -> list[str]:
    """Return a table of tokens and seconds of one episode."""
    lines = [
        "| team | tokens of all agents | tokens in sequence | CPU ms of all agents | CPU ms in sequence |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, everything, waited in seconds(params, list(teams)):
        tokens = mean(e.tokens for e in teams[name])
        path = mean(e.details["critical_path_tokens"] for e in teams[name])
        lines.append(f"| {name} | {tokens:.1f} | {path:.1f} | {everything * 1e3:.1f} | {waited * 1e3:.1f} |")
    return lines


def main() -> int:
    """Write a page for every folder named on the command line."""
    home = Path.cwd()
    for name, _, folder in (word.partition("=") for word in sys.argv[1:]):
        os.chdir(folder)
        try:
            params, teams, result = load_params(), tested(), storage.read_json(RESULTS / "verdict.json")
            sentences = [f"- {other}: {found['sentence']}" for other, found in result["comparisons"].items()]
            lines = [
                "# Test of the writing teams",
                "",
                *(f"{line}\n" for line in result["lines"]),
                *quality(teams),
                "",
                *cost(params, teams),
                "",
                *sentences,
            ]
        finally:
            os.chdir(home)
        (OUTPUT / f"writing-{name}.md").write_text("\n".join(lines) + "\n")
        print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
