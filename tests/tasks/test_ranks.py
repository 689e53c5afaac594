"""A training run of several processes from outside: one command, one report, and no process stays behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file

from pipeline_lib import storage
from pipeline_lib.audit.result import reward_digest
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.settings import load_params
from pipeline_lib.training.checkpoints import read_checkpoint
from tests.policies.conftest import TINY
from tests.sampling import sampled

ROOT = Path(__file__).parents[2]
STEPS = 12


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which everything is ready for training with two processes."""
    folder = tmp_path_factory.mktemp("ready")
    settings: dict[str, Any] = {
        "problems": {"kind": "generated", "sizes": {"train": 40, "validation": 4, "test": 4}},
        "policy": TINY.model_dump(mode="json"),
        "rollouts": {"kind": "transformers", "max_new_tokens": 12},
        "seeds": {"train": [0], "single_agent": []},
        # This model's rewards are all the same, so it is the decay that moves its weights.
        "train": {
            "steps": STEPS, "checkpoint_every": 1, "problems_per_step": 4, "group_size": 4, "processes": 2,
            "weight_decay": 1.0, "learning_rate": 1e-3,
        },
    }  # fmt: skip
    (folder / "params.yaml").write_text(json.dumps(settings))
    params = load_params(folder / "params.yaml")
    prepare(params.environment.kind, params.problems, folder / "data/problems")
    build_base(params.policy, folder / "data/problems", folder / "models/base")
    audited = {"status": "PASS", "summary": "", "identity": {"reward": reward_digest(params.environment)}}
    storage.write_json(folder / "results/audit.json", audited)
    return folder


@pytest.fixture(scope="module")
def whole(ready: Path, tmp_path_factory: pytest.TempPathFactory, prefect: str) -> Path:
    """The same after a training in one piece, by two processes."""
    folder = Path(shutil.copytree(ready, tmp_path_factory.mktemp("whole") / "project"))
    finish(launch(folder))
    return folder


@pytest.fixture
def project(ready: Path, tmp_path: Path) -> Path:
    """The same, not trained."""
    return Path(shutil.copytree(ready, tmp_path / "project"))


def launch(project: Path, seed: int = 0, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "flows.train", "--arm", "team", "--seed", str(seed)],
        cwd=project,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "SYMPOSIUM_RUN": project.name,
            "CUDA_VISIBLE_DEVICES": "",
            **variables,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.drawn("ranks of a stage", "pipeline_lib/training")
@pytest.mark.service
def test_two_processes_train_an_arm(whole: Path):
    rows = list(storage.read_jsonl(whole / "results/train/team-0.jsonl"))
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))  # by the first process alone
    assert all(row["actions/count"] == 2 * 4 * 4 for row in rows)  # of both
    assert read_checkpoint(whole / f"models/trained/team-0/step-{STEPS:05d}")["step"] == STEPS


ALONE = """
import sys, time
from pathlib import Path
from tasks.services.ranks import other_ranks

flag = Path(sys.argv[1])
other = f"import pathlib, sys, time; pathlib.Path({str(flag)!r}).touch(); time.sleep(0.2); sys.exit({sys.argv[2]})"
with other_ranks(2, "-c", other):
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
    assert ("one of the training processes failed" in done.stderr) == (code != 0)


@pytest.mark.drawn("ranks of a stage", "pipeline_lib/training")
@pytest.mark.service
@pytest.mark.parametrize("count", sampled((2, 1), 1, "killed", "pipeline_lib/training"))
def test_when_one_is_killed_all_end_and_another_number_of_processes_goes_on(
    prefect: str, whole: Path, project: Path, tmp_path: Path, count: int
):
    change_train(project, processes=count)
    memory = tmp_path / "memory"
    process = launch(project, SYMPOSIUM_HOME=str(memory))
    try:
        end = time.monotonic() + 200
        while not (new := [path for path in logs(memory) if path.stat().st_size]) and time.monotonic() < end:
            assert process.poll() is None
            time.sleep(0.01)
        (log,) = new  # a step is done
        others = [child for child in psutil.Process(process.pid).children() if is_other_rank(child)]
        assert len(others) == count - 1
        (*others, psutil.Process(process.pid))[0].send_signal(signal.SIGKILL)
        said, _ = process.communicate(timeout=200)
        assert process.returncode != 0
        assert ("one of the training processes failed" in said) == (count == 2)
    finally:
        if process.poll() is None:
            process.kill()
    done = len(log.read_text().splitlines())
    assert 1 <= done < STEPS, "it was not interrupted"
    assert not (project / "models/trained").exists()
    kept = [path.stat().st_mtime_ns for path in sorted(log.parent.rglob("checkpoint.json"))]
    change_train(project, processes=3 - count)
    finish(launch(project, SYMPOSIUM_HOME=str(memory)))
    assert logs(memory) == [log], "another number of processes is another training"
    assert [path.stat().st_mtime_ns for path in sorted(log.parent.rglob("checkpoint.json"))][: len(kept)] == kept
    wanted = weights(whole)
    assert (weights(project) - wanted).norm() < 1e-3 * (wanted - weights(whole, step=0)).norm()


def change_train(project: Path, **values: float) -> None:
    params = json.loads((project / "params.yaml").read_text())
    params["train"] |= values
    (project / "params.yaml").write_text(json.dumps(params))


def finish(process: subprocess.Popen[str]) -> None:
    said, _ = process.communicate(timeout=500)
    assert process.returncode == 0, said[-6000:]


def weights(project: Path, step: int = STEPS) -> torch.Tensor:
    """Return all weights of a checkpoint as one vector."""
    files = sorted((project / f"models/trained/team-0/step-{step:05d}").rglob("*.safetensors"))
    assert files
    return torch.cat([tensor.reshape(-1) for file in files for _, tensor in sorted(load_file(file).items())])


def logs(memory: Path) -> list[Path]:
    return list((memory / "scratch").glob("train/*/metrics.jsonl"))


def is_other_rank(process: psutil.Process) -> bool:
    try:
        return "flows.train" in process.cmdline()
    except psutil.Error:
        return False
