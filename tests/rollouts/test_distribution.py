import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pipeline_lib.rollouts import Sampling
from pipeline_lib.rollouts.sampling import draw, scaled_logits, uniforms

SAMPLINGS = [
    Sampling(),
    Sampling(temperature=0.6),
    Sampling(temperature=1.7, top_k=5),
    Sampling(top_p=0.8),
    Sampling(temperature=0.6, top_k=50, top_p=0.6),
    Sampling(top_k=1),
    Sampling(top_p=1e-6),
]


def plain(row: list[float], sampling: Sampling) -> dict[int, float]:
    """Probabilities of the kept tokens in plain Python."""
    scaled = [v / sampling.temperature for v in row]
    order = sorted(range(len(row)), key=lambda i: (-scaled[i], i))
    if sampling.top_k:
        order = order[: sampling.top_k]
    weights = [math.exp(scaled[i] - scaled[order[0]]) for i in order]
    total, mass, kept = sum(weights), 0.0, []
    for i, weight in zip(order, weights, strict=True):
        if sampling.top_p < 1 and mass >= sampling.top_p:
            break
        kept.append((i, weight))
        mass += weight / total
    total = sum(weight for _, weight in kept)
    return {i: weight / total for i, weight in kept}


def trained_logprobs(logits: torch.Tensor, ids: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Log-probabilities of drawn ids as training takes them."""
    return scaled_logits(logits, sampling, keep=ids).log_softmax(-1).gather(-1, ids[:, None])[:, 0]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@settings(max_examples=40, deadline=None)
@given(row=st.lists(st.floats(-12, 12, width=32), min_size=2, max_size=30, unique=True))
def test_log_probabilities_are_those_of_plain_arithmetic(sampling: Sampling, row: list[float]) -> None:
    expected = plain(row, sampling)
    found = scaled_logits(torch.tensor([row]), sampling).log_softmax(-1)[0]
    support = {i for i in range(len(row)) if found[i] > -math.inf}
    if support != set(expected):  # a cumulative mass within rounding of top_p may fall on either side
        assert sampling.top_p < 1 and len(support ^ set(expected)) == 1
        return
    for i, probability in expected.items():
        assert float(found[i]) == pytest.approx(math.log(probability), abs=2e-5)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_drawn_frequencies_match(sampling: Sampling) -> None:
    torch.manual_seed(1)
    logits = torch.randn(3, 24) * 2
    draws = 6000
    values = uniforms(np.arange(draws, dtype=np.uint64), np.zeros(draws, dtype=np.uint64), 3)
    for row in range(3):
        rows = torch.full((draws,), row)
        ids, logprobs = draw(logits, rows, torch.from_numpy(values[:, row].copy()), sampling)
        expected = plain(logits[row].tolist(), sampling)
        counts = np.bincount(ids.numpy(), minlength=24)
        assert set(np.flatnonzero(counts)) <= set(expected)
        enough = [i for i in expected if expected[i] * draws >= 5]
        observed = [counts[i] for i in enough] + [draws - sum(counts[i] for i in enough)]
        wanted = [expected[i] * draws for i in enough]
        wanted.append(max(draws - sum(wanted), 1e-9))
        if wanted[-1] < 5:
            observed, wanted = observed[:-1], wanted[:-1]
        if len(wanted) > 1:
            scaled = np.array(wanted) * sum(observed) / sum(wanted)
            assert stats.chisquare(observed, scaled).pvalue > 1e-4
        exact = torch.tensor([math.log(expected[int(i)]) for i in ids])
        assert torch.allclose(logprobs, exact, atol=1e-5)
        assert torch.allclose(trained_logprobs(logits[rows], ids, sampling), logprobs, atol=1e-5)


def test_greedy_takes_the_likeliest_with_the_models_own_log_probability() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0], [5.0, 0.0, 0.0]])
    sampling = Sampling(temperature=0, top_k=1, top_p=0.1)
    ids, logprobs = draw(logits, None, torch.tensor([0.999, 0.999]), sampling)
    assert ids.tolist() == [1, 0]
    assert torch.allclose(logprobs, logits.log_softmax(-1).gather(1, ids[:, None])[:, 0])
    assert torch.allclose(trained_logprobs(logits, ids, sampling), logprobs)


def test_a_token_of_probability_zero_is_never_drawn() -> None:
    logits = torch.tensor([[-math.inf, 0.0, -math.inf, -200.0, 0.0, -math.inf]]).expand(4, -1)
    values = torch.tensor([0.0, 0.5, 0.49999994, (2**23 - 1) * 2.0**-23])
    ids, logprobs = draw(logits, None, values, Sampling())
    assert set(ids.tolist()) == {1, 4}
    assert torch.isfinite(logprobs).all()


def test_a_drawn_token_outside_the_trainers_support_has_a_finite_log_probability() -> None:
    logits = torch.tensor([[3.0, 2.0, 1.0, 0.0]], requires_grad=True)
    found = trained_logprobs(logits, torch.tensor([3]), Sampling(top_k=2))
    kept = torch.tensor([3.0, 2.0, 0.0]).log_softmax(-1)[2]
    assert found.item() == pytest.approx(kept.item())
    found.sum().backward()
    assert logits.grad is not None and torch.isfinite(logits.grad).all() and float(logits.grad[0, 2]) == 0


def test_gradient_is_that_of_the_scaled_log_softmax() -> None:
    logits = torch.randn(5, 11, dtype=torch.float64, requires_grad=True)
    ids = torch.arange(5)
    trained_logprobs(logits, ids, Sampling(temperature=0.5)).sum().backward()
    probabilities = (logits.detach() / 0.5).softmax(-1)
    expected = (torch.nn.functional.one_hot(ids, 11) - probabilities) / 0.5
    assert logits.grad is not None and torch.allclose(logits.grad, expected.double(), atol=1e-5)


def test_equal_logits_still_leave_exactly_k_tokens() -> None:
    kept = torch.isfinite(scaled_logits(torch.zeros(2, 9), Sampling(top_k=4)))
    assert kept.sum(-1).tolist() == [4, 4]
    assert kept[0, :4].all()
