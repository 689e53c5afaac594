"""Tensor parallelism with real vLLM, on a CPU: each rank is a process with a part of the weights and of the cores."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import psutil
import pytest
import torch

from pipeline_lib.rollouts import Action, Sampling
from pipeline_lib.rollouts.make import make_engine
from tests.needs import ROOT, VLLM_PYTHON, needs
from tests.rollouts.test_vllm_engine import adapted, assert_exact, requests, section, shake, vllm_policy
from tests.rollouts.tiny import reference_logprobs
from tests.sampling import sampled

pytestmark = [pytest.mark.service, pytest.mark.timeout(1500), needs("vLLM")]


def left_by(processes: Iterable[psutil.Process]) -> list[Path]:
    """Return the files of vLLM and of ours that the processes have in shared memory."""
    found = set()
    for process in processes:
        found |= {Path(entry.path) for entry in process.memory_maps() if entry.path.startswith("/dev/shm/vllm")}
        found |= {Path(word) for word in process.cmdline() if "symposium-weights" in word}
    return sorted(found)


def shared_files(ranks: int) -> int:
    """Return how many files an engine has there: its weights, and where ranks add up in shared memory, one for each.

    vLLM's ranks do so on processors with AVX-512; elsewhere they send their sums to each other.
    """
    add_up = ranks > 1 and "avx512f" in Path("/proc/cpuinfo").read_text()
    return 1 + (ranks if add_up else 0)


@pytest.mark.drawn("processes of vLLM", "pipeline_lib/rollouts", count=2)
@pytest.mark.parametrize("ranks", sampled((1, 2), 1, "ranks", "pipeline_lib/rollouts"))
def test_adapters_of_two_agents_share_an_engine_that_sleeps_and_wakes(ranks: int) -> None:
    base = vllm_policy()
    team = {name: adapted(base, name, seed) for seed, name in enumerate(("helper", "main"))}
    wanted = [request for pair in zip(requests(2, "helper"), requests(2, "main"), strict=True) for request in pair]
    sampling = Sampling(max_new_tokens=10)
    engine = make_engine(section(sleep=True, tensor_parallel=ranks))
    others = set(psutil.Process().children(recursive=True))
    try:
        engine.load(team)
        started = set(psutil.Process().children(recursive=True)) - others
        before = engine.generate(wanted, sampling)
        assert_exact(team, wanted, before, sampling)
        shake(team["main"])
        engine.update(team["main"])
        after = engine.generate(wanted, sampling)
        assert_exact(team, wanted, after, sampling)
        assert [a.ids for acts in before[::2] for a in acts] == [a.ids for acts in after[::2] for a in acts]
        files = left_by(started)
        assert len(files) == shared_files(ranks)
    finally:
        engine.close()
    assert len(started) >= (1 if ranks == 1 else 3) and not psutil.wait_procs(started, timeout=120)[1]
    assert not [file for file in files if file.exists()]


TRAINER = """
import psutil
from pipeline_lib.rollouts import Request, Sampling
from pipeline_lib.rollouts.make import make_engine
from tests.rollouts.test_vllm_engine import assert_exact, requests, section, shake, vllm_policy
team, sampling = vllm_policy(), Sampling(max_new_tokens=12)
engine = make_engine(section(tensor_parallel=2))
engine.load({"team": team})
for _ in range(3):
    assert_exact({"team": team}, requests(), engine.generate(requests(), sampling), sampling)
    shake(team)
    engine.update(team)
print("STARTED", *(child.pid for child in psutil.Process().children(recursive=True)), flush=True)
engine.generate([Request("team", (40, 41), 16_000, 0)], sampling)
print("ENDED", flush=True)
"""


@pytest.mark.drawn("processes of vLLM", "pipeline_lib/rollouts", count=2)
def test_ranks_take_new_weights_and_end_with_a_killed_trainer() -> None:
    """Killed in the middle of a call: nothing is left, neither processes nor memory."""
    trainer = subprocess.Popen([sys.executable, "-c", TRAINER], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert trainer.stdout is not None
        line = next((line for line in trainer.stdout if line.startswith("STARTED")), "")
        assert line, f"the trainer failed with status {trainer.wait()}"
        processes = [psutil.Process(int(word)) for word in line.split()[1:]]
        files = left_by(processes)
        assert len(processes) >= 3 and len(files) == shared_files(2)
        time.sleep(0.5)
    finally:
        trainer.send_signal(signal.SIGKILL)
        assert trainer.communicate()[0] == ""
    assert trainer.returncode == -signal.SIGKILL
    assert not psutil.wait_procs(processes, timeout=120)[1]
    assert not [file for file in files if file.exists()]


INSIDE = """
import json, multiprocessing, sys
from pipeline_lib.rollouts import Request, Sampling
from pipeline_lib.rollouts.make import make_engine
from pipeline_lib.policies.policy import Policy
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from types import SimpleNamespace
folder = sys.argv[1]
model = AutoModelForCausalLM.from_pretrained(folder)
team = Policy("team", model, PreTrainedTokenizerFast.from_pretrained(folder))
names = dict(kind="vllm", process="inside", python="", urls=(), rows=64, dtype="auto", eager=True, memory=0.4)
names |= dict(sleep=False, tensor_parallel=2, replicas=1, devices=(), exchange="", cpu_cache_gib=1)
engine = make_engine(SimpleNamespace(**names))
engine.load({"team": team})
found = engine.generate([Request("team", (40, 41, 42), 3, 5)], Sampling(max_new_tokens=8))
ranks = multiprocessing.active_children()
engine.close()
assert len(ranks) == 2 and not multiprocessing.active_children()
print("FOUND" + json.dumps([[a.ids, a.logprobs] for a in found[0]]))
"""


@pytest.mark.drawn("processes of vLLM", "pipeline_lib/rollouts", count=2)
def test_engine_inside_the_process(tmp_path: Path) -> None:
    """In vLLM's own environment, which has neither pydantic settings nor peft of ours; ranks are processes still."""
    team = vllm_policy()
    team.model.config.architectures = ["Qwen3ForCausalLM"]
    team.model.save_pretrained(tmp_path)
    team.tokenizer.save_pretrained(tmp_path)
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "VLLM_CPU_KVCACHE_SPACE": "1"}
    done = subprocess.run(
        [VLLM_PYTHON, "-c", INSIDE, tmp_path], env=variables, capture_output=True, text=True, timeout=1200, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND")]
    assert lines, done.stderr[-3000:]
    for ids, logprobs in json.loads(lines[0].removeprefix("FOUND")):
        action = Action(tuple(ids), tuple(logprobs), "", "")
        exact = reference_logprobs(team, (40, 41, 42), action, Sampling())
        assert torch.allclose(torch.tensor(logprobs).double(), exact, atol=1e-4)
