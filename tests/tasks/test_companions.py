"""A training run of several processes from outside: one command, one report, and no process stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipeline_lib import storage
from pipeline_lib.audit.audited import reward_digest
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.settings import load_params
from pipeline_lib.training.checkpoints import read_checkpoint
from tasks.services.process_environment import places
from tests.policies.conftest import TINY

ROOT = Path(__file__).parents[2]
STEPS = 3


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder in which everything is ready for training with two processes."""
    settings: dict[str, Any] = {
        "problems": {"kind": "generated", "sizes": {"train": 40, "validation": 4, "test": 4}},
        "policy": TINY.model_dump(mode="json"),
        "rollouts": {"kind": "transformers", "max_new_tokens": 12},
        "train": {"steps": STEPS, "checkpoint_every": STEPS, "problems_per_step": 4, "group_size": 4, "processes": 2},
    }
    (tmp_path / "params.yaml").write_text(json.dumps(settings))
    params = load_params(tmp_path / "params.yaml")
    prepare(params.environment.kind, params.problems, tmp_path / "data/problems")
    build_base(params.policy, tmp_path / "data/problems", tmp_path / "models/base")
    audited = {"status": "PASS", "summary": "", "identity": {"reward": reward_digest(params.environment)}}
    storage.write_json(tmp_path / "results/audit.json", audited)
    return tmp_path


def launch(project: Path, seed: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "flows.train", "--arm", "team", "--seed", str(seed)],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SYMPOSIUM_RUN": project.name, "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.service
@pytest.mark.slow
def test_two_processes_train_an_arm(prefect: str, project: Path):
    process = launch(project, 0)
    said, _ = process.communicate(timeout=500)
    assert process.returncode == 0, said[-6000:]
    rows = list(storage.read_jsonl(project / "results/train/team-0.jsonl"))
    assert [row["step"] for row in rows] == [1, 2, 3]  # by the first process alone
    assert all(row["actions/count"] == 2 * 4 * 4 for row in rows)  # of both
    assert read_checkpoint(project / f"models/trained/team-0/step-{STEPS:05d}")["step"] == STEPS


ALONE = """
import sys, time
from pathlib import Path
from tasks.services.companions import companions

flag = Path(sys.argv[1])
other = f"import pathlib, sys, time; pathlib.Path({str(flag)!r}).touch(); time.sleep(0.2); sys.exit({sys.argv[2]})"
with companions(2, "-c", other):
    while not flag.exists():
        time.sleep(0.001)
    raise ConnectionError("the other end is closed")
"""


@pytest.mark.parametrize("code", [0, 3])
def test_a_broken_connection_is_put_down_to_the_process_that_failed(tmp_path: Path, code: int):
    """Its connection breaks before its end is seen; if it did not fail, the error is this process's own."""
    variables = {name: value for name, value in os.environ.items() if name not in ("WORLD_SIZE", "RANK")}
    done = subprocess.run(
        [sys.executable, "-c", ALONE, tmp_path / "flag", str(code)],
        env=variables | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "ConnectionError: the other end is closed" in done.stderr
    assert ("one of the processes that train together failed" in done.stderr) == (code != 0)


@pytest.mark.service
@pytest.mark.slow
def test_when_one_is_killed_the_other_ends(prefect: str, project: Path):
    params = json.loads((project / "params.yaml").read_text())
    params["train"]["steps"] = 5000
    (project / "params.yaml").write_text(json.dumps(params))
    before = logs()
    process = launch(project, 1)
    try:
        end = time.monotonic() + 200
        while not (new := [path for path in logs() - before if path.stat().st_size]) and time.monotonic() < end:
            assert process.poll() is None
            time.sleep(0.1)
        assert new  # a step is done
        (companion,) = [child for child in psutil.Process(process.pid).children() if is_companion(child)]
        companion.send_signal(signal.SIGKILL)
        said, _ = process.communicate(timeout=200)
        assert process.returncode != 0
        assert "one of the processes that train together failed" in said
    finally:
        if process.poll() is None:
            process.kill()


def logs() -> set[Path]:
    return set(places().scratch.glob("train/*/metrics.jsonl"))


def is_companion(process: psutil.Process) -> bool:
    try:
        return "flows.train" in process.cmdline()
    except psutil.Error:
        return False
