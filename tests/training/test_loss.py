"""The loss against closed forms on distributions small enough to enumerate."""

import itertools

import pytest
import torch

from pipeline_lib.settings.train import LossSettings
from pipeline_lib.training.loss import Tokens, policy_loss

THETA = torch.tensor([0.3, -0.4])


def settings(**changes: object) -> LossSettings:
    return LossSettings.model_validate(changes)


def tokens(logprobs: torch.Tensor, advantage: torch.Tensor, **changes: torch.Tensor | None) -> Tokens:
    values: dict[str, torch.Tensor | None] = {
        "behaviour": logprobs.detach(),
        "positive": advantage.clamp(min=0),
        "negative": (-advantage).clamp(min=0),
        "weight": torch.ones_like(advantage),
    }
    return Tokens(logprobs=logprobs, **(values | changes))  # type: ignore[arg-type]


def gradient(advantage: list[float], drawn: list[int], options: LossSettings, **changes: torch.Tensor) -> torch.Tensor:
    theta = THETA.clone().requires_grad_()
    logprobs = theta.log_softmax(0)[torch.tensor(drawn)]
    policy_loss(tokens(logprobs, torch.tensor(advantage), **changes), options).loss.backward()
    assert theta.grad is not None
    return theta.grad


def test_gradient_on_a_two_token_model_is_the_closed_form() -> None:
    """d(-A log p_a)/d theta = -A (one_hot(a) - p)."""
    p = THETA.softmax(0)
    found = gradient([1.5, -0.5], [0, 1], settings())
    expected = -1.5 * (torch.tensor([1.0, 0.0]) - p) + 0.5 * (torch.tensor([0.0, 1.0]) - p)
    assert torch.allclose(found, expected, atol=1e-6)


def test_first_pass_with_a_ratio_has_the_same_gradient() -> None:
    plain = gradient([1.5, -0.5], [0, 1], settings())
    assert torch.equal(plain, gradient([1.5, -0.5], [0, 1], settings(epochs=2, clip=0.2)))
    old = THETA.log_softmax(0)
    assert torch.allclose(plain, gradient([1.5, -0.5], [0, 1], settings(epochs=2, clip=0.2), old=old), atol=1e-6)


@pytest.mark.parametrize(
    ("advantage", "ratio", "moves"),
    [(1.0, 1.5, False), (1.0, 0.5, True), (-1.0, 0.5, False), (-1.0, 1.5, True), (1.0, 1.1, True)],
)
def test_clip_holds_only_what_went_too_far_the_wanted_way(advantage: float, ratio: float, moves: bool) -> None:
    logprobs = torch.tensor([-1.0], requires_grad=True)
    old = torch.tensor([-1.0]) - torch.tensor([ratio]).log()
    parts = policy_loss(
        tokens(logprobs, torch.tensor([advantage]), old=old, behaviour=old), settings(epochs=2, clip=0.2)
    )
    parts.loss.backward()
    assert logprobs.grad is not None
    assert logprobs.grad.item() == pytest.approx(-advantage * ratio if moves else 0.0, abs=1e-6)
    assert parts.clipped == (not moves)


def test_importance_weights_make_the_gradient_unbiased() -> None:
    """Actions drawn from an engine with another distribution q: E_q[min(p/q, cap) A grad log p] = E_p[A grad log p]."""
    q = torch.tensor([0.35, 0.65])
    advantages = torch.tensor([2.0, 0.5])
    p = THETA.softmax(0)
    expected = -sum(p[a] * advantages[a] * (torch.eye(2)[a] - p) for a in (0, 1))

    def mean_gradient(options: LossSettings) -> torch.Tensor:
        parts = [q[a] * gradient([float(advantages[a])], [a], options, behaviour=q[a].log()[None]) for a in (0, 1)]
        return torch.stack(parts).sum(0)

    assert torch.allclose(mean_gradient(settings(importance_cap=100)), expected, atol=1e-6)
    uncorrected = mean_gradient(settings(importance_threshold=99))
    assert not torch.allclose(uncorrected, expected, atol=1e-2)


def test_importance_weight_is_truncated_and_only_above_the_threshold() -> None:
    behaviour = THETA.log_softmax(0)[:1] - 3.0  # the engine thought it e^3 times less likely
    plain = gradient([1.0], [0], settings())
    assert torch.allclose(gradient([1.0], [0], settings(importance_cap=2), behaviour=behaviour), 2 * plain)
    close = THETA.log_softmax(0)[:1] - 5e-4
    assert torch.equal(gradient([1.0], [0], settings(), behaviour=close), plain)


def test_mismatch_is_measured() -> None:
    logprobs = torch.tensor([-1.0, -2.0])
    parts = policy_loss(tokens(logprobs, torch.ones(2), behaviour=torch.tensor([-1.25, -2.0])), settings())
    assert parts.gap_max == pytest.approx(0.25)
    assert parts.gap_sum == pytest.approx(0.25)
    assert parts.corrected == 1


def test_kl_estimator_is_unbiased_non_negative_and_pulls_towards_the_base() -> None:
    base = torch.tensor([0.2, 0.8])
    p = THETA.softmax(0)
    kl = settings(kl=1.0)
    values = []
    for a in (0, 1):
        logprobs = p.log()[a][None]
        parts = policy_loss(tokens(logprobs, torch.zeros(1), reference=base.log()[a][None]), kl)
        assert parts.kl >= 0
        assert float(parts.loss) == pytest.approx(parts.kl, abs=1e-7)
        values.append(float(p[a]) * parts.kl)
    assert sum(values) == pytest.approx(float((p * (p / base).log()).sum()), abs=1e-6)
    same = policy_loss(tokens(p.log(), torch.zeros(2), reference=p.log()), kl)
    assert same.kl == pytest.approx(0.0, abs=1e-7)
    # token 0 is likelier than under the base: its log-probability must go down
    assert gradient([0.0], [0], kl, reference=base.log()[:1])[0] > 0


def test_entropy_bonus_raises_entropy() -> None:
    theta = THETA.clone().requires_grad_()
    logprobs = theta.log_softmax(0)
    entropy = -(logprobs.exp() * logprobs).sum()[None]
    parts = policy_loss(tokens(logprobs[:1], torch.zeros(1), entropy=entropy), settings(entropy=0.5))
    assert float(parts.loss.detach()) == pytest.approx(-0.5 * float(entropy.detach()))
    parts.loss.backward()
    assert theta.grad is not None
    assert theta.grad[0] > 0 > theta.grad[1]  # the likelier token becomes less likely


def test_terms_that_are_asked_for_change_the_loss() -> None:
    """No option is accepted and ignored."""
    logprobs = torch.tensor([-1.0, -0.5])
    options = [
        (settings(), {}),
        (settings(kl=0.5), {"reference": torch.tensor([-1.2, -0.9])}),
        (settings(entropy=0.5), {"entropy": torch.tensor([0.6, 0.7])}),
        (settings(epochs=2, clip=0.1), {"old": torch.tensor([-2.0, -0.5])}),
        (settings(epochs=2, clip=0.3), {"old": torch.tensor([-2.0, -0.5])}),
        (settings(importance_cap=1.5), {"behaviour": torch.tensor([-3.0, -0.5])}),
        (settings(importance_cap=3.0), {"behaviour": torch.tensor([-3.0, -0.5])}),
    ]
    losses = [float(policy_loss(tokens(logprobs, torch.ones(2), **extra), o).loss) for o, extra in options]
    for one, other in itertools.combinations(losses, 2):
        assert abs(one - other) > 1e-3
