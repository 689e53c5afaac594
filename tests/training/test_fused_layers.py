"""The layers as one function: values and gradients are those of transformers' own layers and torch's graph."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline_lib.policies import trained_model
from pipeline_lib.policies.adapted_linear import attach
from pipeline_lib.policies.policy import Policy, Team
from pipeline_lib.rollouts import Sampling
from pipeline_lib.settings.policy import LoraAdapter
from pipeline_lib.training import learners, step
from pipeline_lib.training.batch import WeightedAction, build
from pipeline_lib.training.fused_layers import FusedLayers, fused_layers
from pipeline_lib.training.learners import make_learners
from pipeline_lib.training.logprobs import TokenScorer
from pipeline_lib.training.packing import MicroBatch, micro_batches
from pipeline_lib.training.update import free_layers, update_policy
from tests.rollouts.tiny import policy
from tests.training.conftest import Agree, make_settings, run_training
from tests.training.test_logprobs import passes

KINDS = ("qwen2", "qwen3", "llama", "llama3")
SOME = ("q_proj", "v_proj", "down_proj")
#: Two groups of a common prompt, actions with common beginnings, and a prompt with a single action.
ROWS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    *((tuple(range(40, 57)), (8, 9, *more)) for more in ((10, 1), (11, 5, 7, 1), (10, 3, 1))),
    *((tuple(range(60, 65)), more) for more in ((8, 7, 1), (9, 1))),
    (tuple(range(70, 79)), (5, 6, 1)),
]


@pytest.fixture(autouse=True)
def small_models_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trained_model, "SMALL_MODEL", 0)


def adapted(kind: str, targets: Any = "all-linear", dtype: torch.dtype = torch.float32, seed: int = 0) -> Policy:
    """Return a policy whose adapter was moved away from zero."""
    base = policy(kind, seed=seed)
    base.model.set_attn_implementation("sdpa")
    model = attach(base.model.to(dtype), LoraAdapter(rank=3, alpha=6, targets=targets), "main", 0)
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if ".lora_" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    return Policy("main", model, base.tokenizer)


def scored(owner: Policy, batches: list[MicroBatch], layers: FusedLayers | None) -> tuple[torch.Tensor, ...]:
    """Return all log-probabilities, and the gradient of a sum of them with weights."""
    scorer = TokenScorer(owner.model, Sampling(temperature=0.8))
    scorer.layers = layers
    owner.model.zero_grad()
    found = []
    for batch in batches:
        logprobs = scorer(batch)[0]
        (logprobs * torch.linspace(-1, 2, len(logprobs))).sum().backward()
        found.append(logprobs.detach())
    gradients = [p.grad.clone() for p in owner.model.parameters() if p.requires_grad and p.grad is not None]
    assert len(gradients) == sum(p.requires_grad for p in owner.model.parameters())
    return torch.cat(found), *gradients


@contextlib.contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Yield the numbers of the layers that are computed."""
    numbers: list[int] = []
    own = FusedLayers._layer
    with monkeypatch.context() as patch:
        patch.setattr(FusedLayers, "_layer", lambda self, n, *given: numbers.append(n) or own(self, n, *given))
        yield numbers


@pytest.mark.parametrize("kept", ["all", "one layer", "nothing"])
@pytest.mark.parametrize("share", [True, False], ids=["trees", "sequences"])
@pytest.mark.parametrize(
    ("kind", "targets"), [*((kind, "all-linear") for kind in KINDS), ("qwen2", SOME), ("llama", ("o_proj",))]
)
def test_values_and_gradients_are_those_of_a_graph(
    kind: str, targets: Any, share: bool, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, batches = adapted(kind, targets), passes(ROWS, 4096, share)
    assert len(batches) == 1
    expected = scored(owner, batches, None)
    layers = fused_layers(owner, {})
    assert layers is not None
    depth = owner.model.config.num_hidden_layers
    if kept != "all":
        layers._most = 0
        scored(owner, batches, layers)
        assert layers._workspace.space is not None
        inputs = 4 * len(layers._workspace.space)
        layers._most = None
        scored(owner, batches, layers)
        layers._most = (4 * len(layers._workspace.space) - inputs) // depth if kept == "one layer" else 0
        layers.free()
    with counted(monkeypatch) as computed:
        found = scored(owner, batches, layers)
    for own, theirs in zip(found, expected, strict=True):
        assert torch.allclose(own, theirs, rtol=1e-4, atol=1e-5 * max(1.0, float(theirs.abs().max())))
    again = {"all": 0, "one layer": depth - 1, "nothing": depth}[kept]
    assert len(computed) == len(batches) * (depth + again), "what is not kept is computed once more"
    assert all(map(torch.equal, found, scored(owner, batches, layers))), "buffers are used again"


def test_attention_in_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = adapted("llama")
    expected = scored(owner, passes(ROWS, 64, True), None)
    monkeypatch.setattr("pipeline_lib.policies.token_blocks.BLOCK", 2)
    found = scored(owner, passes(ROWS, 64, True), fused_layers(owner, {}))
    for own, theirs in zip(found, expected, strict=True):
        assert torch.allclose(own, theirs, rtol=1e-4, atol=1e-4)


def test_bfloat16_is_as_close_to_float32_as_a_graph_is() -> None:
    batches = passes(ROWS, 64, True)
    errors = torch.zeros(2, 2)  # of a graph and of these layers, of log-probabilities and of the whole gradient
    for seed in range(8):
        exact = scored(adapted("llama", seed=seed), batches, None)
        owner = adapted("llama", dtype=torch.bfloat16, seed=seed)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for number, layers in enumerate((None, fused_layers(owner, {}))):
                found = scored(owner, batches, layers)
                pairs = [(own - theirs, theirs) for own, theirs in zip(found, exact, strict=True)]
                errors[number, 0] += pairs[0][0].norm() / pairs[0][1].norm()
                errors[number, 1] += sum(own.square().sum() for own, _ in pairs[1:]) ** 0.5
    assert (errors[1] <= 1.1 * errors[0]).all(), errors


def test_forward_passes_may_overlap_and_a_gradient_is_computed_once() -> None:
    owner = adapted("qwen2")
    first, second = passes(ROWS[:1], 64, True)[0], passes(ROWS[:5], 640, True)[0]  # the second needs larger buffers
    scorer = TokenScorer(owner.model, Sampling())
    scorer.layers = fused_layers(owner, {})

    def gradient(*parts: torch.Tensor) -> list[torch.Tensor]:
        owner.model.zero_grad()
        sum(part.sum() for part in parts).backward()
        return [p.grad.clone() for p in owner.model.parameters() if p.grad is not None]

    one = gradient(scorer(first)[0])
    other = gradient(scorer(second)[0])
    scorer.layers.free()  # type: ignore[union-attr]
    kept, unused = scorer(first)[0], scorer(second)[0]
    del unused  # without a backward pass
    late = scorer(second)[0]
    with torch.no_grad():
        assert torch.equal(scorer(second)[0], late)
    both = gradient(kept, late)
    assert all(torch.allclose(a + b, c, atol=1e-5) for a, b, c in zip(one, other, both, strict=True))
    total = scorer(first)[0].sum()
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="computed before"):
        total.backward()


def test_present_weights_count_and_switched_off_adapters_do_not() -> None:
    owner, batch = adapted("llama"), passes(ROWS, 640, True)[0]
    scorer = TokenScorer(owner.model, Sampling())
    scorer.layers = fused_layers(owner, {})
    before = scorer(batch)[0].detach()
    with torch.no_grad():
        for name, parameter in owner.model.named_parameters():
            if ".lora_" in name:
                parameter.mul_(0.5)
    after = scorer(batch)[0].detach()
    assert not torch.allclose(before, after, atol=1e-3)
    with owner.model.disable_adapter(), torch.no_grad():
        without = scorer(batch)[0]
    scorer.layers.free()
    assert torch.equal(scorer(batch)[0], after)
    scorer.layers = None
    assert torch.allclose(scorer(batch)[0], after, atol=1e-5)
    with owner.model.disable_adapter():
        assert torch.equal(scorer(batch)[0], without)


def test_another_type_than_the_bases_goes_the_general_way() -> None:
    layers = fused_layers(adapted("llama"), {})
    assert layers is not None and layers.usable
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not layers.usable
    narrow = fused_layers(adapted("llama", dtype=torch.bfloat16), {})
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert narrow is not None and narrow.usable


def test_other_models_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("gpt2", "gemma2"):
        assert fused_layers(adapted(kind), {}) is None
    whole = policy("llama")
    assert fused_layers(whole, {}) is None  # trained as a whole
    partly = adapted("llama")
    next(p for name, p in partly.model.named_parameters() if "layernorm" in name).requires_grad_(True)
    assert fused_layers(partly, {}) is None
    slow = adapted("llama")
    slow.model.get_base_model().set_attn_implementation("eager")
    assert fused_layers(slow, {}) is None  # as a person asked
    monkeypatch.setattr(trained_model, "SMALL_MODEL", 10**9)
    assert fused_layers(adapted("llama"), {}) is None


def test_the_base_is_in_memory_once() -> None:
    owner = adapted("qwen2")
    state = {name: p.detach().clone() for name, p in owner.model.named_parameters()}
    layers = fused_layers(owner, {})
    assert layers is not None
    assert all(torch.equal(p, state[name]) for name, p in owner.model.named_parameters())
    held = {p.untyped_storage().data_ptr() for p in owner.model.parameters()}
    for layer in layers._weights.layers:
        for name in ("qkv", "out", "gate_up", "down"):
            assert getattr(layer, name).untyped_storage().data_ptr() in held
    again = fused_layers(owner, {})
    assert again is not None and again._weights.layers[0].qkv.data_ptr() == layers._weights.layers[0].qkv.data_ptr()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_lies_in_buffers_changes_nothing(dtype: torch.dtype) -> None:
    owner, batches = adapted("qwen3", dtype=dtype), passes(ROWS, 64, True)
    larger = passes([(tuple(range(30, 90)), tuple(range(100 + k, 120 + k))) for k in range(6)], 4096, True)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        fresh = scored(owner, batches, fused_layers(owner, {}))
        used = fused_layers(owner, {})
        assert used is not None
        scored(owner, larger, used)
        for most in (None, 0):
            assert used._workspace.space is not None
            for held in (used._workspace.space, *used._buffer):
                held.fill_(float("nan"))
            used._most = most
            assert all(map(torch.equal, fresh, scored(owner, batches, used)))


def test_buffers_are_given_back() -> None:
    owner, batches = adapted("llama"), passes(ROWS, 64, True)
    layers = fused_layers(owner, {})
    assert layers is not None
    scored(owner, batches, layers)
    space = layers._workspace.space
    assert space is not None and list(layers._buffer)
    scored(owner, batches, layers)
    assert layers._workspace.space is space
    layers.free()
    assert layers._workspace.space is None and not list(layers._buffer)


def test_buffers_are_given_back_where_memory_runs_out_and_can_be_after_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = make_settings(micro_batch_tokens=640)
    (one,) = make_learners(settings, Sampling(), Team({"main": adapted("qwen3")}, {"main": "main"}), None, None)
    layers = one.layers
    assert layers is not None
    rows = [WeightedAction(p, a, (-2.0,) * len(a), 1.5, 1.0) for p, a in ROWS]
    batch, back, held = build(rows, 9.0, settings.loss), FusedLayers.backward, list[int]()

    def crowded(self: FusedLayers, run: Any, gradient: torch.Tensor) -> list[torch.Tensor]:
        held.append(sum(map(len, self._buffer)))
        if len(held) == 1:
            raise MemoryError
        if len(held) == 3:
            raise KeyboardInterrupt
        return back(self, run, gradient)

    monkeypatch.setattr(FusedLayers, "backward", crowded)
    with pytest.raises(KeyboardInterrupt):
        update_policy(one, batch, settings.loss, 1e-3, lambda: None)
    assert len(held) == 3 and held[1] < held[0]
    free_layers([one])
    assert layers._workspace.space is None and not list(layers._buffer)


@pytest.mark.parametrize(
    ("loss", "tokens"),
    [({}, 64), ({"epochs": 3, "clip": 0.2}, 640), ({"kl": 0.1, "entropy": 0.05}, 640)],
    ids=["several passes", "several steps on a batch", "other terms"],
)
def test_an_update_takes_the_same_steps(loss: dict[str, float], tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    start = torch.cat([p.detach().flatten() for _, p in adapted("qwen3").trainable()])

    def update(fused: bool) -> tuple[torch.Tensor, Any]:
        with monkeypatch.context() as patch:
            if not fused:
                patch.setattr(learners, "fused_layers", lambda *given: None)
            owner = adapted("qwen3")
            settings = make_settings(loss=loss, micro_batch_tokens=tokens)
            (one,) = make_learners(settings, Sampling(), Team({"main": owner}, {"main": "main"}), None, None)
        assert (one.layers is not None) == fused
        pairs = [(tuple(token + 60 * k for token in prompt), action) for k in range(3) for prompt, action in ROWS]
        rows = [WeightedAction(p, a, (-2.0,) * len(a), 1.5 * (-1) ** n, 1.0) for n, (p, a) in enumerate(pairs)]
        batch = build(rows, 9.0, settings.loss)
        assert (len(micro_batches(batch, tokens, True, 640)) > 1) == (tokens == 64)
        for _ in range(2):
            report = update_policy(one, batch, settings.loss, 1e-3, lambda: None)
        return torch.cat([p.detach().flatten() for _, p in owner.trainable()]), report

    (own, report), (expected, theirs) = update(True), update(False)
    # Adam makes steps of one size even of gradients that are nothing but rounding.
    assert (own - expected).norm() < 0.01 * (expected - start).norm()
    assert report.norms == pytest.approx(theirs.norms, rel=1e-4) and report.kl == pytest.approx(theirs.kl, rel=1e-4)
    assert len(report.norms) == loss.get("epochs", 1) and (theirs.kl > 0) == ("kl" in loss)


def on_one_base() -> Team:
    """Return two agents with adapters of different sizes."""
    base = policy("qwen3")
    base.model.set_attn_implementation("sdpa")
    agents = {
        name: Policy(name, attach(base.model, LoraAdapter(rank=rank, alpha=6), name, rank), base.tokenizer)
        for rank, name in enumerate(("one", "two"), 3)
    }
    return Team(agents, {name: name for name in agents})


@pytest.mark.parametrize("own", [False, True])
def test_agents_on_one_base_are_updated_in_the_same_memory(own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And take the same steps as with a memory of their own each."""

    def updated(own: bool) -> tuple[list[FusedLayers], torch.Tensor]:
        team, settings = on_one_base(), make_settings()
        with monkeypatch.context() as patch:
            if own:
                patch.setattr(learners, "fused_layers", lambda owner, workspaces: fused_layers(owner, {}))
            made = make_learners(settings, Sampling(), team, None, None)
        pairs = [*ROWS, (tuple(range(30, 90)), tuple(range(100, 120)))]
        for learner, known in zip(made, (pairs[:5], pairs), strict=True):  # the second one needs more
            rows = [WeightedAction(p, a, (-2.0,) * len(a), 1.5 * (-1) ** n, 1.0) for n, (p, a) in enumerate(known)]
            update_policy(learner, build(rows, 9.0, settings.loss), settings.loss, 1e-3, lambda: None)
        trained = [p.detach().flatten() for agent in team.policies.values() for _, p in agent.trainable()]
        return [learner.layers for learner in made if learner.layers is not None], torch.cat(trained)

    (one, two), trained = updated(own)
    assert (one._workspace is two._workspace) != own
    assert torch.equal(trained, updated(not own)[1])


def test_memory_is_given_back_after_the_last_update_of_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = list[str]()

    def noted(name: str, function: Any) -> Any:
        def called(*given: Any) -> Any:
            done.append(name)
            return function(*given)

        return called

    monkeypatch.setattr(step, "update_policy", noted("update", update_policy))
    monkeypatch.setattr(FusedLayers, "free", noted("free", FusedLayers.free))
    run_training(tmp_path, on_one_base(), Agree(("one", "two")), settings=make_settings(steps=2, checkpoint_every=2))
    assert done == ["update", "update", "free", "free"] * 2
