"""Prepare a team for training: scorer, optimiser and reference of every policy."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, cast

import torch

from pipeline_lib.memory import PASS_TOKENS
from pipeline_lib.policies.trained_model import bound_memory, is_large_here, without_dropout
from pipeline_lib.rollouts.engine import Sampling
from pipeline_lib.training.fused_layers import Workspace, fused_layers
from pipeline_lib.training.logprobs import TokenScorer
from pipeline_lib.training.optimiser import PolicyOptimiser, TrainingError
from pipeline_lib.training.packing import MicroBatch
from pipeline_lib.training.parallel import ALONE, Processes, ShardedCopy
from pipeline_lib.training.update import Learner, Scorer

if TYPE_CHECKING:
    from pipeline_lib.policies.policy import Policy, Team
    from pipeline_lib.settings.train import TrainSettings


def make_learners(
    settings: TrainSettings,
    sampling: Sampling,
    team: Team,
    base: Team | None,
    compute: torch.dtype | None,
    processes: Processes = ALONE,
) -> list[Learner]:
    """Return a learner per policy that has something to train, in the team's order.

    Args:
        settings: the ``train`` section.
        sampling: the distribution actions are drawn from.
        team: the policies to train.
        base: their bases for the KL term; may be None without one, and for LoRA policies.
        compute: dtype of the forward pass; None means that of the frozen weights below an adapter, else float32.
        processes: the processes that train together.

    Raises:
        TrainingError: the KL term has no base policy, a policy cannot be trained, or all policies are frozen.
    """
    learners = []
    trained = [policy for policy in team.policies.values() if any(True for _ in policy.trainable())]
    if not trained:
        raise TrainingError("policy.agents: every agent is frozen, and nothing would be trained; train at least one")
    workspaces: dict[int, Workspace] = {}
    for policy in trained:
        without_dropout(policy.model)
        bound_memory(policy.model)
        scorer = TokenScorer(policy.model, sampling.of(policy.name))
        sharded, layers = None, None
        if settings.weights == "sharded" and processes.world > 1:
            sharded = ShardedCopy(policy, scorer, processes)
        elif scorer.split:
            layers = scorer.layers = fused_layers(policy, workspaces)
        own = scorer if sharded is None else sharded.scorer
        learner = Learner(
            policy=policy,
            scorer=own,
            optimiser=PolicyOptimiser(policy, settings, None if sharded is None else sharded.trainable()),
            budget=settings.micro_batch_tokens,
            fill=PASS_TOKENS if is_large_here(policy.model) else settings.micro_batch_tokens,
            shares=scorer.shares,
            reference=_reference(policy, base, own, sampling.of(policy.name)) if settings.loss.kl > 0 else None,
            compute=compute or next((p.dtype for p in policy.model.parameters() if not p.requires_grad), torch.float32),
            sharded=sharded,
            layers=layers,
            processes=processes,
        )
        learners.append(learner)
    return learners


def _reference(policy: Policy, base: Team | None, scorer: TokenScorer, sampling: Sampling) -> Scorer:
    if base is not None:
        model = base.policies[policy.name].model
        model.eval()
        return TokenScorer(model, sampling)
    switch = getattr(scorer.model, "disable_adapter", None)
    if switch is None:
        raise TrainingError(
            f"policy {policy.name!r}: train.loss.kl needs the base policy; pass base=, or train a LoRA adapter, which "
            "can be switched off"
        )

    def without_adapter(batch: MicroBatch, entropy: bool = False) -> tuple[torch.Tensor, torch.Tensor | None]:
        with cast(AbstractContextManager[None], switch()):
            return cast("tuple[torch.Tensor, torch.Tensor | None]", scorer(batch, entropy))

    return without_adapter
