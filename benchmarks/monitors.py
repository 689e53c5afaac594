"""False alarms of the monitors of training on simulated runs in which nothing is wrong; docs/monitors.md sums them up.

    python -m benchmarks.monitors [--runs 400] [--updates 60]

A run is the metrics of its updates, drawn with the sizes of the default settings: 32 problems with 8 joint actions
each, 8 problems without each agent every 13 updates, checkpoints every 10.  Every monitor is asked after every update,
as in training.  "Boundary" runs are exactly at the monitor's limit, where an interval of 95 % is wrong most often; the
others are ordinary.  Problems differ in difficulty, and the errors of means are computed over problems, as in training.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline_lib import storage
from pipeline_lib.monitors import GAP, MONITORS, MOST, NEEDED, End

OUTPUT = Path("benchmarks/results/monitors.json")
END = End("done", 0.0, 1.0)
PROBLEMS, GROUP, PAIRS, EVERY, CHECKPOINT = 32, 8, 8, 13, 10

Floats = npt.NDArray[np.float64]
Row = dict[str, float]
Draw = Callable[[np.random.Generator, int], list[Row]]


@dataclass(frozen=True, slots=True)
class Null:
    """A kind of run in which nothing is wrong.

    Attributes:
        monitor: that is asked.
        subject: of its reading.
        about: what the runs are.
        draw: from random numbers and a number of updates to the metrics of a run.
    """

    monitor: str
    subject: str
    about: str
    draw: Draw


def main() -> None:
    """Simulate, print the table and keep its numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--updates", type=int, default=60)
    parsed = parser.parse_args()
    found = []
    for number, null in enumerate(NULLS):
        found.append(alarms(null, parsed.runs, parsed.updates, number))
        print(line(found[-1]), flush=True)
    storage.write_json(OUTPUT, {"runs": parsed.runs, "updates": parsed.updates, "nulls": found})


def alarms(null: Null, runs: int, updates: int, seed: int) -> dict[str, float | str]:
    """Return how often a monitor fires in runs of a kind.

    Returns:
        ``judged`` and ``fired``: readings per run, and the share of them that fired; ``runs``: share of the runs in
        which it fired at least once; ``ended``: share that it would have ended, at a checkpoint.
    """
    rng = np.random.default_rng([seed, 71])
    judged = fired = some = ended = 0
    for _ in range(runs):
        rows = null.draw(rng, updates)
        steps = []
        for step in range(1, updates + 1):
            readings = MONITORS[null.monitor].read(rows[:step], END)
            own = [reading for reading in readings if reading.subject == null.subject]
            judged += len(own)
            steps += [step for reading in own if reading.fires]
        fired += len(steps)
        some += bool(steps)
        ended += any(step % CHECKPOINT == 0 for step in steps)
    return {
        "monitor": null.monitor + (f"/{null.subject}" if null.subject else ""),
        "about": null.about,
        "judged": judged / runs,
        "fired": fired / max(1, judged),
        "runs": some / runs,
        "ended": ended / runs,
    }


def line(found: Mapping[str, float | str]) -> str:
    """Return a row of the table."""
    shares = " | ".join(f"{100 * float(found[name]):.1f} %" for name in ("fired", "runs", "ended"))
    return f"| `{found['monitor']}` | {found['about']} | {shares} |"


def over_problems(values: Floats) -> tuple[float, float]:
    """Return the mean of (problems, joint actions) and its standard error over problems."""
    means = values.mean(axis=1)
    return float(means.mean()), float(means.std(ddof=1) / np.sqrt(len(means)))


def solved(rng: np.random.Generator, level: float) -> Floats:
    """Return the share of the task done, (problems, joint actions), by problems of different difficulty."""
    level = min(max(level, 0.001), 0.999)
    chance = rng.beta(2 * level, 2 * (1 - level), size=(PROBLEMS, 1))
    return rng.binomial(6, chance, size=(PROBLEMS, GROUP)) / 6


def progress(start: float, end: float, pays: Callable[[np.random.Generator, Floats, float], Floats]) -> Draw:
    """Return runs whose metric goes from ``start`` to ``end`` in a line, and whose reward ``pays`` for it."""

    def draw(rng: np.random.Generator, updates: int) -> list[Row]:
        rows = []
        for share in np.linspace(0.0, 1.0, updates):
            done = solved(rng, start + (end - start) * float(share))
            reward, error = over_problems(pays(rng, done, float(share)))
            value, end_error = over_problems(done)
            rows.append(
                {"reward/mean": reward, "reward/error": error, "metrics/done": value, "reward/end_error": end_error}
            )
        return rows

    return draw


def _follows(rng: np.random.Generator, done: Floats, share: float) -> Floats:
    """Return a reward like the default one of coding: form that is soon learned, the task, cooperation."""
    form = rng.random(done.shape) < min(1.0, 0.8 + share)
    return 0.6 * form + done + 0.4 * (done > 0.5)


def _task_only(rng: np.random.Generator, done: Floats, share: float) -> Floats:
    return done


def _noise(rng: np.random.Generator, done: Floats, share: float) -> Floats:
    """Return a reward that has nothing to do with the metric, and does not rise."""
    return rng.normal(0.0, 1.0, done.shape)


def _pairs(name: str, error: str, level: float, spread: float) -> Draw:
    """Return runs in which a mean over problems is drawn anew after every update."""

    def draw(rng: np.random.Generator, updates: int) -> list[Row]:
        values = rng.normal(level, spread, (updates, PROBLEMS, 1))
        found = [over_problems(own) for own in values]
        return [{name: value, error: own} for value, own in found]

    return draw


def _needed(need: float, worth: float) -> Draw:
    """Return runs of a team that does ``worth`` of the task, and ``need`` less without agent b; both in [0, 1]."""

    def draw(rng: np.random.Generator, updates: int) -> list[Row]:
        rows = []
        for step in range(1, updates + 1):
            row = {"agents/token_share/b": 0.5, "agents/empty_share/b": 0.0, "agents/same_share/b": 0.1}
            if step % EVERY == 0:
                team = (rng.random((PAIRS, 1)) < worth).astype(np.float64)
                lost = team * (rng.random((PAIRS, 1)) < need / worth)
                row["ablation/pairs"] = PAIRS
                row["ablation/team"], row["ablation/team_error"] = over_problems(team)
                row["ablation/need/b"], row["ablation/need_error/b"] = over_problems(lost)
            rows.append(row)
        return rows

    return draw


def _caused(share: float, failing: float) -> Draw:
    """Return runs in which static facts blame agent b for a share of the failures."""

    def draw(rng: np.random.Generator, updates: int) -> list[Row]:
        rows = []
        for _ in range(updates):
            count = max(2, int(rng.binomial(PROBLEMS, failing)))
            chance = rng.beta(2 * share, 2 * (1 - share), size=(count, 1))
            value, error = over_problems((rng.random((count, GROUP)) < chance).astype(np.float64))
            rows.append(
                {
                    "failures/share": failing,
                    "failures/caused/b": value,
                    "failures/caused_error/b": max(error, MOST / count),
                }
            )
        return rows

    return draw


HACKING, TRIVIAL, TURNS, CASCADE = "reward_hacking", "trivial_cooperation", "turn_instability", "cascading_errors"

NULLS = (
    Null(HACKING, "", "the team learns, 20 % to 90 %; form is learned first", progress(0.2, 0.9, _follows)),
    Null(HACKING, "", "the team learns slowly, 20 % to 30 %; form is learned first", progress(0.2, 0.3, _follows)),
    Null(HACKING, "", "the reward is the metric; nothing is learned", progress(0.4, 0.4, _task_only)),
    Null(HACKING, "", "the metric is at its best", progress(0.99, 0.99, _task_only)),
    Null(HACKING, "", "boundary: reward and metric are unrelated noise, neither rises", progress(0.4, 0.4, _noise)),
    Null(HACKING, "hidden_tests", "visible and hidden tests alike", _pairs("tests/gap", "tests/gap_error", 0.0, 0.3)),
    Null(
        HACKING,
        "hidden_tests",
        f"boundary: {GAP:.0%} more visible tests".replace("%", " %"),
        _pairs("tests/gap", "tests/gap_error", GAP, 0.3),
    ),
    Null(TRIVIAL, "b", "without the agent half of the metric is lost", _needed(0.5, 0.9)),
    Null(TRIVIAL, "b", "without the agent a fifth is lost", _needed(0.2, 0.9)),
    Null(TRIVIAL, "b", f"boundary: without the agent {NEEDED} is lost", _needed(NEEDED, 0.9)),
    Null(TURNS, "2", "a second turn gains 0.05", _pairs("turns/gain/2", "turns/gain_error/2", 0.05, 0.5)),
    Null(TURNS, "2", "boundary: a second turn gains nothing", _pairs("turns/gain/2", "turns/gain_error/2", 0.0, 0.5)),
    Null(CASCADE, "b", "a third of the failures are the agent's", _caused(1 / 3, 0.6)),
    Null(CASCADE, "b", "boundary: half of the failures are the agent's", _caused(MOST, 0.6)),
)


if __name__ == "__main__":
    main()
