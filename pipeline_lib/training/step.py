"""One step of training: collect experience, compute advantages, update each policy, refresh the engine, and report."""

from __future__ import annotations

import math
import resource
import sys
import time
from collections.abc import Sequence

import psutil
import torch
from torch import nn

from pipeline_lib.monitors import End
from pipeline_lib.play import Decision, Player, Problem, groups, join
from pipeline_lib.settings.train import LEARNED, TrainSettings
from pipeline_lib.training.advantages import returns_to_go
from pipeline_lib.training.batch import actions_of, build, normaliser
from pipeline_lib.training.credit import credit, credit_individually
from pipeline_lib.training.critic import Critic, judge
from pipeline_lib.training.curriculum import LAST_REWARD, TURNS
from pipeline_lib.training.evidence import evidence
from pipeline_lib.training.fidelity import measure_fidelity
from pipeline_lib.training.optimiser import TrainingError
from pipeline_lib.training.parallel import Processes
from pipeline_lib.training.summary import experience_metrics, update_metrics
from pipeline_lib.training.update import Learner, free_layers, update_policy


def flops_per_token(model: nn.Module) -> float:
    """Return the floating-point operations per trained token, without attention.

    Per weight: two in the forward pass, two for the gradient of the input, and two for the gradient of the weight if it
    is trained.  The second forward pass of gradient checkpointing is not counted.  An input embedding is a look-up, so
    it counts only if it is also the output layer.
    """
    embedding = getattr(model, "get_input_embeddings", lambda: None)()
    head = getattr(model, "get_output_embeddings", lambda: None)()
    looked_up = getattr(embedding, "weight", None)
    if looked_up is getattr(head, "weight", None):
        looked_up = None
    total = 0.0
    for parameter in model.parameters():
        if parameter is looked_up or parameter.dim() < 2:
            continue
        total += (6 if parameter.requires_grad else 4) * parameter.numel()
    return total


def memory_peaks() -> dict[str, float]:
    """Return the peak memory of this process in MiB, resident and on the GPU if there is one, and what it holds now."""
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = {
        "memory/resident_mb": resident / (2**20 if sys.platform == "darwin" else 2**10),
        "memory/now_mb": psutil.Process().memory_info().rss / 2**20,
    }
    if torch.cuda.is_available():
        found["memory/gpu_mb"] = torch.cuda.max_memory_allocated() / 2**20
    return found


#: The share of infrastructure failures is computed over at least this number of joint actions.
MIN_EXECUTED = 1000


def train_step(
    settings: TrainSettings,
    learners: Sequence[Learner],
    player: Player,
    problems: Sequence[Problem],
    seed: int,
    step: int,
    rate: float,
    counters: dict[str, float],
    infra_error_share: float,
    processes: Processes,
    end: End | None = None,
    critic: Critic | None = None,
) -> dict[str, float]:
    """Do one update and return its metrics.

    Args:
        settings: the ``train`` section.
        learners: the policies, up to date in the player's engine.
        player: plays the team; with several processes each plays its share of the problems.
        problems: the problems of this step, the same in every process.
        seed: seed of the run.
        step: number of the update, from 1.
        rate: learning rate.
        counters: ``executed`` and ``lost`` joint actions so far; updated in place.
        infra_error_share: share of lost joint actions above which training ends.
        processes: the processes that train together.
        end: the metric that the reward should stand for, for the monitors.
        critic: the value function of the baselines that need one; in the first process.

    Raises:
        TrainingError: the infrastructure failed too often, or the update did.
    """
    started = time.perf_counter()
    slots = processes.share(range(len(problems)))
    roots = groups([problems[i] for i in slots], settings.group_size, seed, step, slots)
    experience = join(processes.gather(player.play(roots)))
    decisions = experience.decisions
    counters["executed"] += experience.executed
    counters["lost"] += experience.lost
    if counters["lost"] > infra_error_share * max(counters["executed"], MIN_EXECUTED):
        raise TrainingError(
            f"{counters['lost']:g} of {counters['executed']:g} joint actions got no reward because the infrastructure "
            f"failed, more than sandbox.infra_error_share ({infra_error_share:g}) allows; look at the sandbox's "
            "errors, then run the same command to continue from the last checkpoint"
        )
    gains = settings.turn_reward == "gain"
    teams = {problem.id: player.environment.agents(problem) for problem in problems}
    learned: dict[str, float] = {}
    if share := settings.individual_reward:
        discount = settings.discount
        compared, flat_share = credit_individually(experience, teams, share, discount, gains, settings.advantage)
    elif settings.advantage.baseline in LEARNED:
        own = None if critic is None else judge(critic, experience, teams, settings)
        compared, flat_share, learned = next(part for part in processes.gather(own) if part is not None)
    else:
        returns = returns_to_go([d.reward for d in decisions], [d.parent for d in decisions], settings.discount, gains)
        compared, flat_share = credit(experience, returns, player.plan, settings.advantage)
    measured: dict[str, float] = {}
    if processes.first and settings.fidelity_every and step % settings.fidelity_every == 0:
        measured = measure_fidelity(player, roots, experience, compared, settings.discount, seed, step, gains)
        started += measured["time/fidelity_s"]  # it is not part of training
    collected = time.perf_counter()
    actions = actions_of(experience, compared, settings.loss.mask_truncated)
    reports, counts, stale, own_rates = {}, {}, 0, {}
    try:
        for learner in learners:
            name = learner.policy.name
            rows, truncated = actions.get(name, ([], 0))
            if not rows:
                continue
            stale += sum(row.version != learner.policy.version for row in rows)
            batch = build(rows, normaliser(rows, settings.loss.normalisation), settings.loss, truncated)
            counts[name] = batch.counts
            own_rate = rate
            if (peak := learner.policy.learning_rate) is not None:
                own_rate = own_rates[f"update/learning_rate/{name}"] = rate * peak / settings.learning_rate
            reports[name] = update_policy(learner, batch, settings.loss, own_rate, player.check)
    finally:
        free_layers(learners)
    updated = time.perf_counter()
    for learner in learners:
        if learner.policy.name in reports:
            player.engine.update(learner.policy)
    finished = time.perf_counter()
    work = sum(
        reports[m.policy.name].tokens * flops_per_token(m.policy.model) for m in learners if m.policy.name in reports
    )
    metrics = experience_metrics(experience, compared, flat_share) | update_metrics(reports, counts, stale, rate)
    return (
        metrics
        | _last_turn(decisions, player.turns)
        | evidence(experience, compared, end, player.environment)
        | own_rates
        | measured
        | learned
        | memory_peaks()
        | {
            "update/tflop_per_s": work / 1e12 / max(updated - collected, 1e-9),
            "time/generation_s": experience.generation_s,
            "time/execution_s": experience.execution_s,
            "time/waiting_s": experience.waiting_s,
            "time/update_s": updated - collected,
            "time/refresh_s": finished - updated,
            "time/step_s": finished - started,
            "time/tokens_per_s": metrics["actions/tokens"] / max(experience.generation_s, 1e-9),
        }
    )


def _last_turn(decisions: Sequence[Decision], turns: int | None) -> dict[str, float]:
    """Return what a curriculum over turns reads: the number of turns, and the mean reward with which episodes end."""
    if turns is None:
        return {}
    ended = [(d.weight, d.reward) for d in decisions if d.last and d.reward is not None]
    found = {TURNS: float(turns)}
    if total := math.fsum(weight for weight, _ in ended):
        found[LAST_REWARD] = math.fsum(weight * reward for weight, reward in ended) / total
    return found
