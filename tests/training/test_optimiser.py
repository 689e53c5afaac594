"""Steps that move weights, steps that are refused, and rates over time."""

import math

import pytest
import torch

from pipeline_lib.policies.policy import Policy
from pipeline_lib.training.optimiser import MAX_REFUSED, PolicyOptimiser, TrainingError, learning_rate
from tests.training.bigram import Bigram
from tests.training.conftest import add_lora, make_model, make_settings, make_tokenizer


def make(model: torch.nn.Module | None = None, **changes: object) -> tuple[PolicyOptimiser, torch.nn.Parameter]:
    module = model or Bigram()
    policy = Policy("team", module, None)  # type: ignore[arg-type]
    return PolicyOptimiser(policy, make_settings(**changes)), next(module.parameters())


def test_an_update_of_relative_size_1e_4_moves_every_weight() -> None:
    """In bfloat16 it moves almost none: half a unit in the last place is 2e-3 of the value (fault 1.5)."""
    optimiser, table = make()
    with torch.no_grad():
        table.copy_(torch.linspace(0.5, 1.0, 16).reshape(4, 4))
    before = table.detach().clone()
    table.grad = torch.ones_like(table)
    optimiser.step(1e-4)
    assert (table != before).all()
    assert torch.allclose(before - table, torch.full_like(table, 1e-4), rtol=1e-2)
    rounded = before.bfloat16()
    assert ((rounded - 1e-4) == rounded).all()  # what would become of the same update


def test_weights_that_cannot_hold_small_updates_are_refused() -> None:
    with pytest.raises(TrainingError, match=r"bfloat16.*must be\s+torch.float32"):
        make(Bigram().bfloat16())
    lora = add_lora(make_model().bfloat16())
    PolicyOptimiser(Policy("team", lora, make_tokenizer()), make_settings())  # adapters are float32
    for parameter in lora.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(TrainingError, match="no trainable parameter"):
        PolicyOptimiser(Policy("team", lora, make_tokenizer()), make_settings())


def test_the_gradient_is_clipped_to_the_norm_asked_for() -> None:
    moments = []
    for clip in (0.0, 1.0, 100.0):
        optimiser, table = make(gradient_clip=clip)
        table.grad = torch.full_like(table, 3.0)
        assert optimiser.step(1e-3) == pytest.approx(12.0)  # the norm is reported before clipping
        moments.append(optimiser.state()["exp_avg/table"].norm().item() / 0.1)
    assert moments == pytest.approx([12.0, 1.0, 12.0], rel=1e-3)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_changes_nothing_is_counted_and_ends_training(value: float) -> None:
    """The public code replaces a NaN loss by a constant and goes on without a word (fault 1.2)."""
    optimiser, table = make()
    before = table.detach().clone()
    for count in range(1, MAX_REFUSED):
        table.grad = torch.full_like(table, value)
        assert not math.isfinite(optimiser.step(1e-3))
        assert (optimiser.refused, optimiser.refused_in_a_row) == (count, count)
    assert torch.equal(table, before)
    assert optimiser.state() == {}
    assert optimiser.policy.version == 0
    table.grad = torch.full_like(table, value)
    with pytest.raises(TrainingError, match=f"not finite in {MAX_REFUSED} steps in a row"):
        optimiser.step(1e-3)


def test_a_good_step_in_between_is_forgiven() -> None:
    optimiser, table = make()
    for k in range(3 * MAX_REFUSED):
        table.grad = torch.full_like(table, math.nan if k % 2 else 1.0)
        optimiser.step(1e-3)
    assert optimiser.refused == 3 * MAX_REFUSED // 2
    assert optimiser.policy.version == 3 * MAX_REFUSED - optimiser.refused


def test_moments_survive_saving() -> None:
    first, table = make()
    second, other = make()
    for k in range(4):
        gradient = torch.randn(table.shape, generator=torch.Generator().manual_seed(k))
        table.grad = gradient.clone()
        first.step(1e-2)
        if k == 1:
            with torch.no_grad():
                other.copy_(table)
            second.restore(first.state())
        if k > 1:
            other.grad = gradient.clone()
            second.step(1e-2)
    assert torch.equal(table, other)


def test_moments_of_another_policy_are_refused() -> None:
    optimiser, table = make()
    table.grad = torch.ones_like(table)
    optimiser.step(1e-3)
    with pytest.raises(TrainingError, match="fits no parameter"):
        make(Bigram(5))[0].restore(optimiser.state())
    with pytest.raises(TrainingError, match="fits no parameter"):
        make()[0].restore({"exp_avg/elsewhere": torch.zeros(1)})


def test_schedules() -> None:
    def rates(**changes: object) -> list[float]:
        settings = make_settings(steps=10, learning_rate=0.1, **changes)
        return [learning_rate(settings, step) for step in range(10)]

    assert rates() == [0.1] * 10
    linear = rates(schedule="linear", warmup_steps=2)
    assert linear[:3] == pytest.approx([0.05, 0.1, 0.1])
    assert linear[-1] == pytest.approx(0.1 / 8)
    cosine = rates(schedule="cosine", warmup_steps=2)
    assert cosine[6] == pytest.approx(0.05)
    assert linear != cosine
    assert rates(warmup_steps=4)[:5] == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1])
