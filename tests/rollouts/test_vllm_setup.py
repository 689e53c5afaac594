"""What a vllm engine decides before vLLM is started; none is needed for that."""

import sys
from pathlib import Path

import pytest

from pipeline_lib.rollouts import EngineError
from pipeline_lib.rollouts.make import make_engine
from pipeline_lib.rollouts.vllm_setup import check_divides, gpus_of
from pipeline_lib.rollouts.vllm_worker import share
from pipeline_lib.settings.rollouts import VllmRollouts
from tests.rollouts.tiny import policy


@pytest.mark.parametrize(
    ("devices", "visible", "found"),
    [
        ((), "0123", ["01", "23"]),  # each replica has its own, although none is named
        ((), "5672", ["56", "72"]),
        ((3, 1, 0, 2), "0123", ["31", "02"]),
        ((), "", ["", ""]),  # a CPU
    ],
)
def test_gpus_of_replicas(devices: tuple[int, ...], visible: str, found: list[str]) -> None:
    section = VllmRollouts(tensor_parallel=2, replicas=2, devices=devices)
    assert ["".join(gpus_of(section, replica, list(visible))) for replica in range(2)] == found


def test_a_single_engine_may_use_all_gpus_and_too_few_are_refused() -> None:
    assert gpus_of(VllmRollouts(tensor_parallel=2), 0, ["0", "1", "2"]) == []
    with pytest.raises(EngineError, match=r"2 replicas on 1 GPUs each need 2, and 1 can be seen"):
        gpus_of(VllmRollouts(replicas=2), 0, ["0"])


@pytest.mark.parametrize("cores", [[0], [0, 1], [4, 5, 6, 7, 8]])
@pytest.mark.parametrize("parts", [1, 2, 3])
def test_cores_are_shared_out(cores: list[int], parts: int) -> None:
    shares = [share(cores, part, parts) for part in range(parts)]
    assert all(shares) and {core for part in shares for core in part} == set(cores)
    assert len(cores) < parts or sum(map(len, shares)) == len(cores)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_model_that_can_be_divided(ranks: int) -> None:
    check_divides(VllmRollouts(tensor_parallel=ranks), policy())  # 4 heads, 2 with keys: each on 2 of 4 ranks
    check_divides(VllmRollouts(tensor_parallel=ranks), policy("gpt2"))


def test_a_model_that_cannot_be_divided_is_refused(tmp_path: Path) -> None:
    wrong = r"num_attention_heads 4, num_key_value_heads 2, vocab_size 270 \(padded to 320\)"
    section = VllmRollouts(tensor_parallel=3, python=sys.executable, exchange=str(tmp_path))
    with pytest.raises(EngineError, match=rf"rollouts.tensor_parallel: policy team cannot be divided by 3: {wrong};"):
        make_engine(section).load({"team": policy()})
    assert not list(tmp_path.iterdir())  # nothing is left of an engine that could not be loaded
