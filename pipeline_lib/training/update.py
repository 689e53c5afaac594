"""One update of one policy: micro-batches, gradients, an optimiser step, and its metrics.

Policies are updated one after the other, so that only one policy's activations and gradients are in memory.  All turns
of a batch go into one step.  When memory runs out, the token budget is halved and the same step is repeated.  With
several processes each computes its share of the micro-batches and the gradients are summed.
"""

from __future__ import annotations

import contextlib
import gc
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from pipeline_lib.training.batch import PolicyBatch
from pipeline_lib.training.loss import LossParts, Tokens, policy_loss
from pipeline_lib.training.optimiser import PolicyOptimiser, TrainingError
from pipeline_lib.training.packing import MicroBatch, micro_batches
from pipeline_lib.training.parallel import ALONE, Processes

if TYPE_CHECKING:
    from pipeline_lib.policies.policy import Policy
    from pipeline_lib.settings.train import LossSettings
    from pipeline_lib.training.fused_layers import FusedLayers
    from pipeline_lib.training.parallel import ShardedCopy

logger = logging.getLogger(__name__)

#: A function with the interface of `TokenScorer.forward`.
Scorer = Callable[..., tuple[torch.Tensor, torch.Tensor | None]]


@dataclass(slots=True)
class Learner:
    """A policy with everything that its update needs."""

    policy: Policy  #: the policy
    scorer: Scorer  #: its model, which returns log-probabilities
    optimiser: PolicyOptimiser  #: its optimiser
    budget: int  #: maximum number of tokens per forward pass, padding included; halved if memory runs out
    fill: int  #: a pass gets no further tree beyond this number of tokens
    shares: bool  #: actions of one prompt share their prefixes in a forward pass (see `packing`)
    reference: Scorer | None = None  #: the base policy's scorer for the KL term, or None
    compute: torch.dtype = torch.float32  #: dtype of the forward pass (autocast if it is not float32)
    sharded: ShardedCopy | None = None  #: the sharded copy that is trained, if weights are sharded over processes
    layers: FusedLayers | None = None  #: what computes the model's layers, if transformers does not
    processes: Processes = ALONE  #: the processes that train together

    @property
    def device(self) -> torch.device:
        """Return the device of the trained weights."""
        return next(iter(self.optimiser.parameters.values())).device


@dataclass(slots=True)
class UpdateReport:
    """Sums over one policy's update; see `pipeline_lib.training.loss.LossParts` for the parts.

    ``edges`` is the number of log-probabilities computed in the first pass, ``tokens`` the number of tokens in all
    passes, padding included.  ``loss``, ``kl`` and the gaps are of the first pass, before the weights changed;
    ``clipped`` is over later passes.  ``norms`` has one gradient norm per pass, not finite if the step was refused.
    """

    loss: float = 0.0
    kl: float = 0.0
    edges: int = 0
    tokens: int = 0
    clipped: int = 0
    corrected: int = 0
    gap_sum: float = 0.0
    gap_max: float = 0.0
    norms: list[float] = field(default_factory=list)

    def add(self, parts: LossParts, edges: int, tokens: int, first: bool) -> None:
        """Add a micro-batch."""
        self.clipped += parts.clipped
        self.tokens += tokens
        if first:
            self.loss += float(parts.loss)
            self.kl += parts.kl
            self.edges += edges
            self.corrected += parts.corrected
            self.gap_sum += parts.gap_sum
            self.gap_max = max(self.gap_max, parts.gap_max)

    def merge(self, other: UpdateReport) -> None:
        """Add the report of another process on the same update."""
        for name in ("loss", "kl", "edges", "tokens", "clipped", "corrected", "gap_sum"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.gap_max = max(self.gap_max, other.gap_max)


def update_policy(
    learner: Learner, batch: PolicyBatch, settings: LossSettings, rate: float, check: Callable[[], None]
) -> UpdateReport:
    """Take ``settings.epochs`` optimiser steps on a batch; memory of passes is kept until `free_layers`.

    Args:
        learner: the policy and its optimiser.
        batch: the training data, the same in every process.
        settings: the loss.
        rate: learning rate.
        check: called before every forward pass; raises to stop (a run then continues from its last checkpoint).

    Raises:
        TrainingError: too many refused steps, or one sequence alone does not fit into memory.
    """
    # Log-probabilities of the first pass, per token of the batch; their order does not depend on micro-batches.
    first_pass = {name: torch.zeros(len(batch.behaviour), device=learner.device) for name in ("old", "reference")}
    report = UpdateReport()
    for epoch in range(settings.epochs):
        while (done := _pass(learner, batch, first_pass, settings, epoch, check)) is None:
            learner.budget = _smaller_budget(learner, batch)
        for parts, edges, tokens in done:
            report.add(parts, edges, tokens, epoch == 0)
        if epoch == 0 and settings.epochs > 1:
            learner.processes.sum(first_pass.values())
        if learner.sharded is None:
            learner.processes.sum(learner.optimiser.gradients())
        report.norms.append(learner.optimiser.step(rate))
    if learner.sharded is not None:
        learner.sharded.copy_back()
    whole = UpdateReport(norms=report.norms)
    for part in learner.processes.gather(report):
        whole.merge(part)
    return whole


def free_layers(learners: Iterable[Learner]) -> None:
    """Give back what updates of policies share, after the last of them."""
    for learner in learners:
        if learner.layers is not None:
            learner.layers.free()


def _pass(
    learner: Learner,
    batch: PolicyBatch,
    first_pass: dict[str, torch.Tensor],
    settings: LossSettings,
    epoch: int,
    check: Callable[[], None],
) -> list[tuple[LossParts, int, int]] | None:
    """Accumulate the gradient of one pass over the batch; the first pass fills ``first_pass``.

    Returns:
        Loss parts, edges and tokens of every micro-batch; None if memory ran out, here or in another process.
    """
    learner.optimiser.zero()
    if epoch == 0:
        for values in first_pass.values():
            values.zero_()  # a failed pass used other micro-batches
    all_batches = micro_batches(batch, learner.budget, learner.shares, learner.fill)
    own_batches = learner.processes.share(all_batches)
    # Sharded weights are gathered in every forward and backward pass, so all processes need the same number of both.
    longest = -(-len(all_batches) // learner.processes.world)
    extra_batches = all_batches[-1:] if learner.sharded is not None and len(own_batches) < longest else []
    done: list[tuple[LossParts, int, int]] = []
    failed = False
    try:
        with contextlib.nullcontext() if learner.layers is None else learner.layers.unchanged():
            for micro_batch in own_batches:
                check()
                parts = _forward_backward(learner, micro_batch.to(learner.device), first_pass, settings, epoch)
                done.append((parts, len(micro_batch.targets), micro_batch.input_ids.numel()))
        for micro_batch in extra_batches:
            with _precision(learner.device, learner.compute):
                logprobs, _ = learner.scorer(micro_batch.to(learner.device), settings.entropy > 0)
                if epoch == 0 and learner.reference is not None:
                    with torch.no_grad():
                        learner.reference(micro_batch.to(learner.device))
            (0 * logprobs.sum()).backward()
    except (torch.OutOfMemoryError, RuntimeError, MemoryError) as error:
        if learner.sharded is not None or not _is_out_of_memory(error):
            raise
        failed = True
    # Outside the handler, because the traceback keeps the tensors of the failed pass in memory.
    if not learner.processes.any(failed):
        return done
    learner.optimiser.zero()
    if learner.layers is not None:
        learner.layers.free()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return None


def _forward_backward(
    learner: Learner, micro_batch: MicroBatch, first_pass: dict[str, torch.Tensor], settings: LossSettings, epoch: int
) -> LossParts:
    with _precision(micro_batch.input_ids.device, learner.compute):
        logprobs, entropy = learner.scorer(micro_batch, settings.entropy > 0)
        if epoch == 0 and learner.reference is not None:
            with torch.no_grad():
                first_pass["reference"][micro_batch.tokens] = learner.reference(micro_batch)[0][micro_batch.edges]
    if epoch == 0:
        first_pass["old"][micro_batch.tokens] = logprobs.detach()[micro_batch.edges]
    parts = policy_loss(
        Tokens(
            logprobs=logprobs,
            behaviour=micro_batch.behaviour,
            positive=micro_batch.positive,
            negative=micro_batch.negative,
            weight=micro_batch.weight,
            old=micro_batch.of_edges(first_pass["old"]) if epoch > 0 else None,
            reference=micro_batch.of_edges(first_pass["reference"]) if learner.reference is not None else None,
            entropy=entropy,
        ),
        settings,
    )
    # FSDP2 averages gradients over processes; the loss needs their sum.
    scale = learner.processes.world if learner.sharded is not None else 1
    (parts.loss * scale).backward()
    return replace(parts, loss=parts.loss.detach())


def _smaller_budget(learner: Learner, batch: PolicyBatch) -> int:
    """Return half the tokens of the largest pass, for the rest of the training."""
    largest = max(
        micro_batch.input_ids.numel()
        for micro_batch in micro_batches(batch, learner.budget, learner.shares, learner.fill)
    )
    rows = zip(batch.prompts, batch.actions, strict=True)
    if largest <= max(len(prompt) + len(action) - 1 for prompt, action in rows):
        raise TrainingError(
            f"policy {learner.policy.name!r}: out of memory with a single sequence of {largest} tokens; shorten "
            "rollouts.max_new_tokens, use a LoRA adapter, or turn on policy.gradient_checkpointing"
        )
    budget = max(1, min(learner.budget, largest) // 2)
    logger.warning(
        "policy %r: out of memory in the update; the step is repeated with micro-batches of %d tokens (set "
        "train.micro_batch_tokens to this to avoid the repetition)",
        learner.policy.name,
        budget,
    )
    return budget


def _is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)


@contextlib.contextmanager
def _precision(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    if dtype == torch.float32:
        yield
        return
    with torch.autocast(device.type, dtype=dtype):
        yield
