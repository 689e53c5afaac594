"""Prompts that are read once for all their actions: the same logits, in any order of forks, ends and refills."""

import numpy as np
import pytest
import torch

from pipeline_lib.rollouts import Request, Sampling, batching, decoder, shared_prompts, slot_cache
from pipeline_lib.rollouts.kernels import PlainKernels
from pipeline_lib.rollouts.shared_prompts import KeptPrompts, SharedPrompts, attention, together
from pipeline_lib.rollouts.transformers_engine import TransformersEngine
from tests.rollouts.tiny import FAST, policy, reference_logprobs

SAMPLING = Sampling(max_new_tokens=12, temperature=0.9)


@pytest.fixture(params=[True, False], ids=["on Intel", "elsewhere"], autouse=True)
def in_float32(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding of bfloat16, for which prompts are shared, would hide small errors."""
    monkeypatch.setattr(slot_cache, "turned", lambda device, dtype: False)
    monkeypatch.setattr(decoder, "kernels_for", lambda device, dtype, eps, widths: PlainKernels(eps))
    monkeypatch.setattr(shared_prompts, "on_intel", lambda: request.param)


@pytest.mark.parametrize("kind", FAST)
@pytest.mark.parametrize("rows", [3, 7, 64])
def test_actions_have_their_own_log_probabilities(kind: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "PREFILL_TOKENS", 40)  # several prefills are in use at once
    team, rng = policy(kind, spread=1.0), np.random.default_rng(5)
    lengths = rng.integers(1, 30, 14)
    requests = [
        Request("team", tuple(rng.integers(0, 250, length).tolist()), 1 + number % 4, number)
        for number, length in enumerate(lengths)
    ]
    engine = TransformersEngine(rows=rows)
    engine.load({"team": team})
    found = engine.generate(requests, SAMPLING)
    for request, actions in zip(requests, found, strict=True):
        for action in actions:
            exact = reference_logprobs(team, request.prompt, action, SAMPLING)
            assert torch.allclose(torch.tensor(action.logprobs).double(), exact.double(), atol=1e-4)
    lasting = {len(action.ids) for actions in found for action in actions}
    assert min(lasting) < 12 == max(lasting)  # some end before others


def test_parts_together_are_the_attention_over_both() -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 3, tokens, 8) for tokens in (4, 20, 20))
    hidden = torch.zeros(2, 1, 1, 20)
    hidden[1, ..., 5:9] = float("-inf")
    whole, total = attention(query, key, value, hidden)
    parts = [attention(query, key[:, :, at], value[:, :, at], hidden[..., at]) for at in (slice(12), slice(12, 20))]
    scores = query @ key.transpose(2, 3) / 8**0.5 + hidden
    assert torch.allclose(whole, scores.softmax(-1) @ value, atol=1e-6)
    assert torch.allclose(total, scores.logsumexp(-1), atol=1e-5)
    assert torch.allclose(together(*parts), whole, atol=1e-6)


def test_prompts_that_no_slot_continues_are_given_up() -> None:
    first, second = (KeptPrompts(torch.randn(1, 2, 4, 1, 6, 8), np.array([6, 2, 5, 3])) for _ in range(2))
    prompts, query, own = SharedPrompts(), torch.randn(8, 1, 2, 8), torch.randn(2, 8, 1, 3, 8)
    hidden = torch.zeros(8, 1, 1, 3)
    hidden[::2, ..., 1:] = float("-inf")
    prompts.clear(8)
    prompts.place(first, np.array([0, 1, 2, 3]), np.array([0, 1, 2, 3]))
    prompts.place(second, np.array([3, 2, 1, 1]), np.array([4, 5, 6, 7]))

    def exact(source: KeptPrompts, row: int, slot: int) -> torch.Tensor:
        drawn = own[:, slot, :, : 3 - 2 * (slot % 2 == 0)]
        keys, values = torch.cat([source.cells[0, :, row, :, : source.lengths[row]], drawn], 2)
        return (query[slot] @ keys.transpose(1, 2) / 8**0.5).softmax(-1) @ values

    def check(held: list[tuple[KeptPrompts, int]]) -> None:
        found = prompts.attend(0, query[: len(held)], *own[:, : len(held)], hidden[: len(held)])
        for slot, (source, row) in enumerate(held):
            assert torch.allclose(found[slot], exact(source, row, slot), atol=1e-6)
            assert prompts.lengths[slot] == source.lengths[row]

    check([*((first, row) for row in range(4)), *((second, row) for row in (3, 2, 1, 1))])
    prompts.move(np.array([7, 7]), np.array([0, 2]), 4)
    check([(second, 1), (first, 1), (second, 1), (first, 3)])
    assert [len(one.lengths) for one in prompts._prefills] == [2, 1]  # of four each
    prompts.move(np.array([2]), np.array([1]), 2)
    check([(second, 1), (second, 1)])
    assert len(prompts._prefills) == 1 and torch.equal(prompts._prefills[0].cells, second.cells[:, :, 1:2])
