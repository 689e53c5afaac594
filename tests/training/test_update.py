"""One update, end to end from actions to gradients, on a model with gradients in closed form."""

import logging
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from pipeline_lib.rollouts.engine import Sampling
from pipeline_lib.settings.train import LossSettings
from pipeline_lib.training.batch import WeightedAction, build, normaliser
from pipeline_lib.training.optimiser import TrainingError
from pipeline_lib.training.parallel import Processes
from pipeline_lib.training.update import update_policy
from tests.training.bigram import Bigram, bigram_learner

# (prompt, action, advantage): lengths differ, one row repeats, one has no advantage
ROWS: list[tuple[tuple[int, ...], tuple[int, ...], float]] = [
    ((2,), (3, 0, 1), 1.0),
    ((2,), (3, 0, 1), 0.5),
    ((2, 0), (1,), -1.0),
    ((3,), (2, 1), 0.25),
    ((3,), (2, 2, 2, 2), 0.0),
]


def weighted(model: Bigram, sampling: Sampling) -> list[WeightedAction]:
    rows = []
    for prompt, action, advantage in ROWS:
        logits = model.table.detach()[list((prompt + action)[len(prompt) - 1 : -1])] / sampling.temperature
        behaviour = logits.log_softmax(-1)[range(len(action)), list(action)]
        rows.append(WeightedAction(prompt, action, tuple(behaviour.tolist()), advantage, 1.0))
    return rows


def closed_form(model: Bigram, kind: str, temperature: float = 1.0) -> torch.Tensor:
    """d/d table of -(1/Z) sum A sum log p: for every (previous, token), -(A / Z) (one_hot(token) - p) / temperature."""
    total = sum(len(action) for _, action, _ in ROWS)
    gradient = torch.zeros_like(model.table)
    p = (model.table.detach() / temperature).softmax(-1)
    for prompt, action, advantage in ROWS:
        divisor = {"batch_tokens": total, "sequences": len(ROWS), "sequence_mean": len(ROWS) * len(action)}[kind]
        for k, token in enumerate(action):
            previous = (prompt + action)[len(prompt) - 1 + k]
            gradient[previous] -= advantage / divisor * (torch.eye(len(p))[token] - p[previous]) / temperature
    return gradient


def run(temperature: float = 1.0, budget: int = 4096, **loss: Any) -> tuple[torch.Tensor, Any, Any]:
    """Return the gradient that reached the optimiser, the learner and the report."""
    sampling = Sampling(temperature=temperature)
    learner = bigram_learner(sampling, loss=loss, micro_batch_tokens=4096, gradient_clip=0)
    learner.budget = budget
    model: Any = learner.policy.model
    gradients = []
    step = learner.optimiser.step

    def spy(rate: float) -> float:
        gradients.append(model.table.grad.clone() if model.table.grad is not None else None)
        return step(rate)

    learner.optimiser.step = spy  # type: ignore[method-assign]
    settings = LossSettings.model_validate(loss)
    rows = weighted(model, sampling)
    batch = build(rows, normaliser(rows, settings.normalisation), settings)
    report = update_policy(learner, batch, settings, 1e-3, lambda: None)
    return gradients[0], learner, report


@pytest.mark.parametrize("kind", ["batch_tokens", "sequences", "sequence_mean"])
def test_gradient_is_the_closed_form_in_every_normalisation(kind: str) -> None:
    """Fails when pads after the end are trained on, the last position is dropped, or the prompt counts (fault 1.4)."""
    gradient, _, _ = run(normalisation=kind)
    assert torch.allclose(gradient, closed_form(Bigram(), kind), atol=1e-6)


def test_normalisations_differ() -> None:
    kinds = ("batch_tokens", "sequences", "sequence_mean")
    found = {kind: run(normalisation=kind)[0] for kind in kinds}
    directions = [g / g.norm() for g in found.values()]
    assert not torch.allclose(found["batch_tokens"], found["sequences"], atol=1e-3)
    assert not torch.allclose(directions[1], directions[2], atol=1e-3)


@pytest.mark.parametrize("budget", [1, 3, 6, 4096])
@pytest.mark.parametrize("kind", ["batch_tokens", "sequences", "sequence_mean"])
def test_gradient_does_not_depend_on_micro_batches(kind: str, budget: int) -> None:
    gradient, _, report = run(normalisation=kind, budget=budget)
    assert torch.allclose(gradient, closed_form(Bigram(), kind), atol=1e-6)
    assert report.loss == pytest.approx(run(normalisation=kind)[2].loss, abs=1e-6)


def test_gradient_is_that_of_the_tempered_distribution() -> None:
    """The public code samples at a temperature and takes the gradient at temperature 1 (fault 1.3)."""
    gradient, _, report = run(temperature=0.5)
    assert torch.allclose(gradient, closed_form(Bigram(), "batch_tokens", 0.5), atol=1e-6)
    assert not torch.allclose(gradient, closed_form(Bigram(), "batch_tokens", 1.0), atol=1e-2)
    assert report.gap_max < 1e-5


def test_skipping_and_merging_are_exact() -> None:
    """With a vanishing KL weight every row is computed; the gradient is the same as with rows left out."""
    gradient, learner, _ = run()
    rows = weighted(learner.policy.model, Sampling())
    assert build(rows, 1.0, LossSettings()).counts.rows == 3
    assert build(rows, 1.0, LossSettings(entropy=1e-12)).counts.rows == 4
    everything, _, _ = run(entropy=1e-12)
    assert torch.allclose(gradient, everything, atol=1e-6)


def test_one_step_per_batch_and_the_version_counts_it() -> None:
    _, learner, report = run()
    assert learner.policy.version == 1
    assert len(report.norms) == 1


def test_epochs_take_a_step_each_and_the_ratio_is_to_the_policy_that_collected() -> None:
    _, learner, report = run(epochs=3, clip=0.2)
    assert learner.policy.version == 3
    assert len(report.norms) == 3
    assert report.corrected == 0  # the engine agreed with the policy that collected; later passes do not count
    # A large step leaves the clip's range, so that the last pass has nothing left to gain from these tokens.
    held = bigram_learner(Sampling(), learning_rate=0.9, loss={"epochs": 2, "clip": 0.1})
    settings = LossSettings(epochs=2, clip=0.1)
    rows = weighted(held.policy.model, Sampling())  # type: ignore[arg-type]
    report = update_policy(held, build(rows, 1.0, settings), settings, 0.9, lambda: None)
    assert report.clipped > 0


def test_a_batch_without_effect_is_a_zero_gradient() -> None:
    """Leaving rows out is exact also for the optimiser: momentum goes on as it would with a gradient of zero."""
    learner, other = bigram_learner(), bigram_learner()
    settings = LossSettings()
    flat = [WeightedAction((2,), (3, 1), (-1.0, -1.0), 0.0, 1.0)]
    for one, kept in ((learner, settings), (other, LossSettings(entropy=1e-30))):
        rows = weighted(one.policy.model, Sampling())  # type: ignore[arg-type]
        update_policy(one, build(rows, 12.0, settings), settings, 1e-2, lambda: None)
        before = one.policy.model.table.detach().clone()  # type: ignore[union-attr]
        update_policy(one, build(flat, 2.0, kept), kept, 1e-2, lambda: None)
        assert not torch.equal(before, one.policy.model.table)  # type: ignore[arg-type, union-attr]
    assert torch.equal(learner.policy.model.table, other.policy.model.table)  # type: ignore[arg-type, union-attr]


class Crowded(Bigram):
    """Runs out of memory beyond a number of tokens per forward pass."""

    limit = 6

    def forward(self, input_ids: torch.Tensor, use_cache: bool = False) -> Any:
        if input_ids.numel() > self.limit:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
        return super().forward(input_ids, use_cache)


def test_out_of_memory_halves_the_micro_batch_and_repeats_the_step(caplog: pytest.LogCaptureFixture) -> None:
    learner = bigram_learner(model=Crowded(), gradient_clip=0)
    plain = bigram_learner(gradient_clip=0)
    settings = LossSettings()
    with caplog.at_level(logging.WARNING):
        for one in (learner, plain):
            rows = weighted(one.policy.model, Sampling())  # type: ignore[arg-type]
            batch = build(rows, normaliser(rows, "batch_tokens"), settings)
            for _ in range(3):
                update_policy(one, batch, settings, 1e-2, lambda: None)
    assert learner.budget <= 6
    assert [record.message for record in caplog.records if "out of memory" in record.message] != []
    assert len(caplog.records) == 1  # said once: the smaller budget is kept
    assert torch.allclose(learner.policy.model.table, plain.policy.model.table, atol=1e-5)  # type: ignore[arg-type, union-attr]


@dataclass(frozen=True)
class Thread(Processes):
    """One of two that train together, as threads: they meet at a barrier and put their values on a board."""

    board: list[Any] = field(default_factory=list)
    barrier: threading.Barrier = field(default_factory=lambda: threading.Barrier(2))

    def gather(self, value: Any) -> list[Any]:
        self.board[self.rank] = value
        self.barrier.wait(30)
        values = list(self.board)
        self.barrier.wait(30)
        return values

    def sum(self, tensors: Iterable[torch.Tensor]) -> None:
        for tensor in tensors:
            tensor.copy_(torch.stack(self.gather(tensor.clone())).sum(0))


def test_several_processes_forget_what_a_pass_without_memory_had_computed() -> None:
    """The second process gets through its cut, the first does not; then that cut is the first one's to compute."""
    settings = LossSettings(epochs=3, clip=0.2)
    board: list[Any] = [None, None]
    barrier = threading.Barrier(2)

    def train(rank: int | None) -> torch.Tensor:
        model = Crowded()
        model.limit = 4
        learner = bigram_learner(model=model, gradient_clip=0)
        learner.budget = 6
        if rank is not None:
            learner.processes = Thread(rank, 2, board=board, barrier=barrier)
        rows = weighted(model, Sampling())
        batch = build(rows, normaliser(rows, "batch_tokens"), settings)
        update_policy(learner, batch, settings, 0.1, lambda: None)
        assert learner.budget < 6, "nothing was repeated"
        return model.table.detach()

    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(train, (0, 1)))
    alone = train(None)
    assert torch.allclose(both[0], alone, atol=1e-6)
    assert torch.equal(both[0], both[1])


def test_a_sequence_that_does_not_fit_alone_ends_training() -> None:
    model = Crowded()
    learner = bigram_learner(model=model)
    model.limit = 2
    rows = weighted(model, Sampling())
    with pytest.raises(TrainingError, match="single sequence of 3 tokens"):
        update_policy(learner, build(rows, 1.0, LossSettings()), LossSettings(), 1e-2, lambda: None)


def test_what_the_allocator_says_on_the_cpu_is_out_of_memory() -> None:
    class Greedy(Crowded):
        def forward(self, input_ids: torch.Tensor, use_cache: bool = False) -> Any:
            if input_ids.numel() > self.limit:
                torch.empty(2**60, dtype=torch.uint8)
            return Bigram.forward(self, input_ids, use_cache)

    learner = bigram_learner(model=Greedy())
    rows = weighted(learner.policy.model, Sampling())  # type: ignore[arg-type]
    report = update_policy(learner, build(rows, 1.0, LossSettings()), LossSettings(), 1e-2, lambda: None)
    assert learner.budget <= 6
    assert report.edges > 0


def test_other_errors_are_not_taken_for_memory() -> None:
    class Broken(Bigram):
        def forward(self, input_ids: torch.Tensor, use_cache: bool = False) -> Any:
            if input_ids.numel() > 4:
                raise RuntimeError("shapes do not match")
            return super().forward(input_ids, use_cache)

    learner = bigram_learner(model=Broken())
    rows = weighted(learner.policy.model, Sampling())  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="shapes"):
        update_policy(learner, build(rows, 1.0, LossSettings()), LossSettings(), 1e-2, lambda: None)


def test_a_stop_is_heard_between_forward_passes() -> None:
    learner = bigram_learner()
    rows = weighted(learner.policy.model, Sampling())  # type: ignore[arg-type]

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        update_policy(learner, build(rows, 1.0, LossSettings()), LossSettings(), 1e-2, stop)
    assert learner.policy.version == 0
