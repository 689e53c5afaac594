"""Training in a process of its own, killed with SIGKILL at random moments, ends with the bytes of a quiet run."""

import json
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest

from pipeline_lib.storage import folder_digest
from tests.training.conftest import Agree, make_settings, make_team, run_training

STEPS, INTERVAL, KILLS = 20, 3, 10


def work(folder: Path, lora: bool, baseline: str) -> None:
    """Train to the end, noting every step and the start in files that survive a kill."""
    journal = (folder / "journal").open("a", buffering=1)
    settings = make_settings(steps=STEPS, checkpoint_every=INTERVAL, group_size=4, advantage={"baseline": baseline})

    def note(step: int, metrics: dict[str, float]) -> None:
        journal.write(f"{os.getpid()} {step}\n")

    team = make_team(lora=lora)
    (folder / f"started-{os.getpid()}").touch()
    run_training(folder, team, Agree(turns=2), settings=settings, on_step=note)
    (folder / "finished").touch()


def start(folder: Path, lora: bool, baseline: str) -> multiprocessing.process.BaseProcess:
    # A fork of a clean server that has imported everything: starts at once, shares no state with this process.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.training.conftest", "pipeline_lib.training.trainer", __name__])
    process = context.Process(target=work, args=(folder, lora, baseline))
    process.start()
    deadline = time.monotonic() + 120
    while not (folder / f"started-{process.pid}").exists() and process.is_alive() and time.monotonic() < deadline:
        time.sleep(0.002)
    return process


def steps_noted(folder: Path) -> int:
    journal = folder / "journal"
    return len(journal.read_text().splitlines()) if journal.exists() else 0


def results(folder: Path) -> dict[str, str]:
    """Return digests of all checkpoints and of the newest state."""
    scratch = folder / "scratch"
    found = [*scratch.glob("step-*"), *scratch.glob("state-*")]
    assert not list(scratch.glob(".*.part"))
    return {path.name: folder_digest(path) for path in sorted(found)}


def computed(row: dict[str, float]) -> dict[str, float]:
    """Return a step's metrics without those that measure the machine: times, rates, memory."""
    measured = ("time/", "memory/", "update/tflop_per_s")
    return {name: value for name, value in row.items() if not name.startswith(measured)}


@pytest.mark.parametrize(("lora", "baseline"), [(False, "mean"), (True, "mean"), (False, "counterfactual")])
def test_killed_runs_continue_to_the_same_bytes(tmp_path: Path, lora: bool, baseline: str) -> None:
    quiet, restless = tmp_path / "quiet", tmp_path / "restless"
    quiet.mkdir(), restless.mkdir()
    start(quiet, lora, baseline).join(300)
    assert (quiet / "finished").exists()

    chance = random.Random(5)
    killed = 0
    while not (restless / "finished").exists():
        process = start(restless, lora, baseline)
        if killed < KILLS:
            # Any moment: some steps on, and then some instant within a step, a checkpoint or the start.
            target = steps_noted(restless) + chance.randrange(0, 5)
            while process.is_alive() and steps_noted(restless) < target:
                time.sleep(0.001)
            time.sleep(chance.uniform(0, 0.03))
            if process.is_alive() and process.pid is not None:
                os.kill(process.pid, signal.SIGKILL)
                killed += 1
        process.join(300)
    assert killed >= 3

    assert results(restless) == results(quiet)
    rows = [json.loads(line) for line in (restless / "scratch" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    expected = [json.loads(line) for line in (quiet / "scratch" / "metrics.jsonl").read_text().splitlines()]
    for row, other in zip(rows, expected, strict=True):
        assert computed(row) == computed(other)

    newest = 0
    process_of_newest = ""
    for line in (restless / "journal").read_text().splitlines():
        pid, step = line.split()[0], int(line.split()[1])
        if pid != process_of_newest:
            assert step > newest - INTERVAL  # at most one interval is repeated
        newest, process_of_newest = max(newest, step), pid
