"""A real ``vllm serve`` with two ranks: trained on by the vllm engine, evaluated on by the openai engine."""

import dataclasses
import math
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch

from pipeline_lib.policies.policy import Policy, remote_policy
from pipeline_lib.rollouts import EngineError, Request, Sampling
from pipeline_lib.rollouts.make import make_engine
from pipeline_lib.rollouts.openai_engine import OpenAIEngine, OpenAIServer
from pipeline_lib.settings.rollouts import VllmRollouts
from tests.needs import VLLM_PYTHON, needs
from tests.rollouts.test_vllm_engine import adapted, assert_exact, requests, shake, vllm_policy
from tests.rollouts.test_vllm_parallel import left_by

pytestmark = [pytest.mark.service, pytest.mark.timeout(1500), needs("vLLM")]

TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.fixture(scope="module")
def base() -> Policy:
    return vllm_policy()


@pytest.fixture(scope="module")
def url(base: Policy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a server as the documentation says, with the base model."""
    folder = tmp_path_factory.mktemp("server")
    base.model.config.architectures = ["Qwen3ForCausalLM"]
    base.model.save_pretrained(folder / "model")
    base.tokenizer.save_pretrained(folder / "model")
    (folder / "template.jinja").write_text(TEMPLATE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # what `vllm serve` runs; the command itself does not find its own version in the wheel for CPUs
    command = [VLLM_PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", folder / "model"]
    command += ["--served-model-name", "tiny", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--dtype", "float32", "--enforce-eager", "--max-num-seqs", "32"]
    command += ["--logprobs-mode", "processed_logprobs", "--generation-config", "vllm"]
    command += ["--chat-template", folder / "template.jinja"]
    command += ["--tensor-parallel-size", "2"]
    command += ["--enable-lora", "--max-lora-rank", "8", "--max-loras", "2"]
    variables = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    variables |= {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_SERVER_DEV_MODE": "1"}
    cores = sorted(os.sched_getaffinity(0))
    variables["VLLM_CPU_OMP_THREADS_BIND"] = f"{cores[0]}|{cores[-1]}"  # one each; by itself it wants two NUMA nodes
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [str(part) for part in command], env=variables, stdout=log, stderr=log, start_new_session=True
        )
    found = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + 1200
        while not _ready(found):
            assert process.poll() is None and time.monotonic() < until, (folder / "log").read_text()[-3000:]
            time.sleep(1)
        yield found
    finally:
        if process.poll() is None:
            files = left_by(psutil.Process(process.pid).children(recursive=True))
            os.killpg(process.pid, 15)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()
            for file in files:  # vLLM leaves them behind
                file.unlink(missing_ok=True)


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5):
            return True
    except OSError:
        return False


@pytest.mark.drawn("processes of vLLM", "pipeline_lib/rollouts", count=2)
def test_adapters_are_swapped_on_a_server(base: Policy, url: str) -> None:
    team = {name: adapted(base, name, seed) for seed, name in enumerate(("helper", "main"))}
    wanted = [request for pair in zip(requests(2, "helper"), requests(2, "main"), strict=True) for request in pair]
    sampling = Sampling(0.7, max_new_tokens=10)
    engine = make_engine(VllmRollouts(process="server", urls=(url,)))
    try:
        engine.load(team)
        assert_exact(team, wanted, engine.generate(wanted, sampling), sampling)
        shake(team["main"])
        engine.update(team["main"])
        assert_exact(team, wanted, engine.generate(wanted, sampling), sampling)
        with pytest.raises(EngineError, match=r"rollouts\.urls: 1 servers for 2 or more engines"):
            make_engine(VllmRollouts(process="server", urls=(url,))).load(
                {"a": vllm_policy(1, "a"), "b": vllm_policy(2, "b")}
            )
    finally:
        engine.close()


@pytest.mark.drawn("processes of vLLM", "pipeline_lib/rollouts", count=2)
def test_full_weights_are_replaced_on_a_server(base: Policy, url: str) -> None:
    other = vllm_policy(seed=5)
    engine = make_engine(VllmRollouts(process="server", urls=(url,)))
    sampling = Sampling(max_new_tokens=10)
    try:
        for team in (other, base):  # the base goes back for the other tests
            engine.load({"team": team})
            assert_exact({"team": team}, requests(), engine.generate(requests(), sampling), sampling)
    finally:
        engine.close()


@pytest.mark.drawn("processes of vLLM", "pipeline_lib/rollouts", count=2)
def test_openai_engine_with_token_ids(base: Policy, url: str, tmp_path: Path) -> None:
    server = OpenAIServer(url=f"{url}/v1", models=("tiny",), api="tokens", key_variable="", cache=str(tmp_path))
    engine = OpenAIEngine(server)
    engine.load({"team": base})
    for sampling in (Sampling(max_new_tokens=10), Sampling(0.6, 0.8, 20, 10)):
        found = engine.generate(requests(), sampling)
        assert_exact({"team": base}, requests(), found, sampling)
    again = OpenAIEngine(server)
    again.load({"team": base})
    assert again.generate(requests(), sampling) == found and again.counters.extra["asked"] == 0
    assert engine.counters.prompt_tokens > 0 and engine.counters.generated_tokens > 0


@pytest.mark.drawn("processes of vLLM", "pipeline_lib/rollouts", count=2)
@pytest.mark.parametrize("api", ["chat", "completions"])
def test_openai_engine_with_text(base: Policy, url: str, api: str) -> None:
    """Greedy text is that of the model itself for the same prompt."""
    server = OpenAIServer(url=f"{url}/v1", models=("tiny",), api=api, key_variable="", cache="")
    policies = {agent: remote_policy(agent, "tiny") for agent in ("helper", "main")}
    engine = OpenAIEngine(server)
    engine.load(policies)
    prompt = policies["main"].encode("def main(xs):")
    action = engine.generate([Request("main", prompt, 1, 0)], Sampling(0.0, max_new_tokens=8))[0][0]
    ids = torch.tensor([base.encode("def main(xs):")])
    alone = base.model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=8)
    exact = base.decode(tuple(alone[0, ids.shape[1] :].tolist()))
    unfinished = "\N{REPLACEMENT CHARACTER}"  # the server withholds the beginning of a character at the end
    assert action.text.rstrip(unfinished) == exact.rstrip(unfinished) and exact
    assert all(math.isnan(v) for v in action.logprobs)
    with pytest.raises(EngineError, match=r"HTTP 404.*check the URL"):
        unknown = OpenAIEngine(dataclasses.replace(server, models=("huge",)))
        unknown.load({"helper": remote_policy("helper", "huge")})
        unknown.generate([Request("helper", prompt, 1, 0)], Sampling())
