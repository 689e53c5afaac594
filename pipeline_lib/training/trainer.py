"""Train a team step by step, write checkpoints, and continue a killed run.

Strictly on-policy: every step collects with the newest weights, takes one optimiser step per policy and epoch on all
turns together, and discards the experience.  The loop is independent of model, environment and engine; it guarantees
this order:

    draw problems -> collect experience -> returns -> advantages -> update each policy -> refresh the engine -> trial
    (if the curriculum asks for it) -> log

It does not evaluate or select checkpoints, or use trackers; callers get every step's metrics and every checkpoint's
folder through callbacks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from pipeline_lib.credit.plans import make_plan
from pipeline_lib.environment_api.environment import Environment
from pipeline_lib.memory import give_back_memory
from pipeline_lib.monitors import End
from pipeline_lib.play import Player, Problem, add_amounts
from pipeline_lib.policies.computing import cpu_numerics, is_large, threads_for
from pipeline_lib.policies.policy import Team
from pipeline_lib.policies.store import team_digest
from pipeline_lib.protocols import Decentralised, Protocol
from pipeline_lib.rollouts.engine import Engine, Sampling
from pipeline_lib.settings.train import LEARNED, TrainSettings, unfit_for_tools
from pipeline_lib.training.ablation import ablate
from pipeline_lib.training.budget import Budget, most_steps
from pipeline_lib.training.checkpoint_folders import state_folder, step_folder
from pipeline_lib.training.checkpoints import clear_leftovers, load_checkpoint, write_checkpoint
from pipeline_lib.training.critic import Critic
from pipeline_lib.training.curriculum import Sampler, make_sampler, play_trial
from pipeline_lib.training.learners import make_learners
from pipeline_lib.training.metrics_log import NAME as METRICS
from pipeline_lib.training.metrics_log import MetricsLog
from pipeline_lib.training.optimiser import TrainingError, learning_rate
from pipeline_lib.training.parallel import ALONE, Processes
from pipeline_lib.training.step import train_step
from pipeline_lib.training.stopping import TrainingStopped, Watch, exclusive_lock, stop_requests
from pipeline_lib.training.trainer_state import Between, load_state, resume_point, tidy, write_state
from pipeline_lib.training.update import Learner


@dataclass(frozen=True, slots=True)
class TrainResult:
    """The result of a finished run."""

    steps: int  #: updates done
    resumed_from: int  #: step from which the run continued; 0 if it started from the beginning
    #: Step and folder of every checkpoint that was due, step 0 (the untrained team) included.
    checkpoints: tuple[tuple[int, Path], ...]
    metrics: Path  #: the file with one line per step
    refused: int  #: optimiser steps refused because a gradient was not finite


def train(
    *,
    settings: TrainSettings,
    sampling: Sampling,
    environment: Environment[Any, Any],
    team: Team,
    engine: Engine,
    problems: Sequence[Problem],
    seed: int,
    scratch: Path,
    protocol: Protocol | None = None,
    validation: Sequence[Problem] = (),
    base: Team | None = None,
    compute: torch.dtype | None = None,
    infra_error_share: float = 0.005,
    end: End | None = None,
    budget: Budget | None = None,
    processes: Processes = ALONE,
    on_step: Callable[[int, dict[str, float]], None] = lambda step, metrics: None,
    on_checkpoint: Callable[[int, Path], None] = lambda step, folder: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> TrainResult:
    """Train a team in place.

    Args:
        settings: the ``train`` section.
        sampling: the sampling distribution; the update uses the same.
        environment: the task; the caller closes it.
        team: the base policies; afterwards they have the last step's weights.
        engine: samples from the policies; the caller closes it.
        problems: training problems with distinct ids.
        seed: seed of the run.
        scratch: folder for this run only; its name must contain everything that would make checkpoints incompatible.
            A killed run continues from the checkpoints in it.
        protocol: how the team produces joint actions; by default `Decentralised`.
        validation: problems for the trials of a curriculum (``train.curriculum``); other samplers need none.
        base: the base policies for the KL term; not needed for a LoRA team (its adapters are switched off).
        compute: dtype of the forward pass in the update (trained weights stay float32); None means that of the frozen
            weights below an adapter, and float32 if all weights are trained.
        infra_error_share: share of joint actions lost to the infrastructure above which training stops.
        end: the metric that the reward should stand for; monitors watch it (docs/monitors.md), and without it there are
            none.
        budget: compute after which training ends, instead of after ``settings.steps`` updates; a schedule of the
            learning rate then follows the share of it that is used.
        processes: the processes that train together (see `parallel`).  Every process calls this function with its own
            team, engine and environment; only the first one writes files and calls back.
        on_step: called after every update with its number (from 1) and metrics.
        on_checkpoint: called with step and folder of every planned checkpoint, including those found on continuing, so
            it may be called twice for one checkpoint.
        should_stop: called several times per step; True stops training.

    Raises:
        TrainingStopped: training was asked to stop.
        TrainingError: contradictory settings, gradients that are not finite, too many infrastructure
            failures, out of memory; the last checkpoint stays usable.
    """
    _check(settings, sampling, problems, environment)
    lock = exclusive_lock(scratch) if processes.first else contextlib.nullcontext()
    large = is_large(team)
    with lock, cpu_numerics(threads_for(team), large), stop_requests(should_stop) as check:
        learners = make_learners(settings, sampling, team, base, compute, processes)
        critic = None
        if settings.advantage.baseline in LEARNED and processes.first:  # the policies are the base still
            size = max(len(environment.agents(problem)) for problem in problems)
            critic = Critic(settings.advantage, learners[0].policy, size, seed)
        most = most_steps(settings, budget)
        regular = range(0, most + 1, settings.checkpoint_every)
        sampler = make_sampler(settings.curriculum, problems, validation, seed, environment)
        start, counters = _start_or_resume(
            scratch, team, learners, sampler, most, regular, budget is not None, processes, critic
        )

        def ended(step: int) -> bool:
            return step >= most or (budget is not None and counters["used"] >= budget.amount)

        log = MetricsLog(scratch, start) if processes.first else None
        watch = Watch(end, settings.stop_when, processes.gather(log.rows() if log is not None else [])[0])
        if not ended(start) and not watch.ended:
            engine.load(team.sampled())
        player = Player(
            environment=environment,
            team=team,
            engine=engine,
            sampling=sampling,
            protocol=protocol or Decentralised(),
            tree=settings.groups == "tree",
            plan=make_plan(**settings.credit.model_dump()),
            check=check if processes.world == 1 else lambda: None,
            overlap=settings.overlap,
            observed=settings.advantage.baseline in LEARNED,
        )
        try:
            due = [done for done in regular if done <= start]
            if ended(start) and start not in regular:
                due.append(start)
            for done in due if processes.first else ():
                on_checkpoint(done, step_folder(scratch, done))
            step, between = start, Between()
            while not ended(step) and not watch.ended:
                step += 1
                _stop_together(check, processes)
                todo = [problems[i] for i in sampler.draw(settings.problems_per_step)]
                player = replace(player, turns=sampler.turns)
                place = budget.progress(counters["used"], settings) if budget else step - 1
                rate = learning_rate(settings, place)
                metrics = train_step(
                    settings,
                    learners,
                    player,
                    todo,
                    seed,
                    step,
                    rate,
                    counters,
                    infra_error_share,
                    processes,
                    end,
                    critic,
                )
                if large:
                    give_back_memory()
                if budget is not None:  # seconds are those of the first process, so that all end together
                    counters["used"] += processes.gather(budget.of(metrics))[0]
                sampler.updated(metrics)
                for further in (
                    play_trial(sampler, validation, player, seed, step, processes),
                    ablate(settings, player, problems, end, seed, step, processes),
                ):
                    costs = {name: amount for name, amount in metrics.items() if name.startswith("costs/")}
                    add_amounts(costs, {name: amount for name, amount in further.items() if name.startswith("costs/")})
                    metrics |= further | costs
                has_checkpoint = step in regular or ended(step)
                metrics = watch.add(step, metrics, has_checkpoint)
                if log is not None:
                    log.append(step, metrics)
                    on_step(step, metrics)
                if not has_checkpoint and not processes.gather(between.due())[0]:
                    continue
                with between.writing():
                    if log is not None:
                        log.sync()
                    write_state(
                        scratch, step, learners, sampler.state(), counters, processes, critic, not has_checkpoint
                    )
                    if len(set(processes.gather(team_digest(team) if processes.world > 1 else ""))) > 1:
                        raise TrainingError(
                            f"step {step}: processes hold different weights; continue from the last checkpoint"
                        )
                    folder = write_checkpoint(scratch, step, team) if processes.first else None
                    if processes.first:
                        tidy(scratch, step, regular)
                if has_checkpoint:
                    due.append(step)
                    if folder is not None:
                        on_checkpoint(step, folder)
        finally:
            if log is not None:
                log.close()
    return TrainResult(
        steps=step,
        resumed_from=start,
        checkpoints=tuple((done, step_folder(scratch, done)) for done in due),
        metrics=scratch / METRICS,
        refused=sum(learner.optimiser.refused for learner in learners),
    )


def _start_or_resume(
    scratch: Path,
    team: Team,
    learners: Sequence[Learner],
    sampler: Sampler,
    most: int,
    regular: Sequence[int],
    open_end: bool,
    processes: Processes,
    critic: Critic | None,
) -> tuple[int, dict[str, float]]:
    """Write the first checkpoint, or load the one to continue from; return its step and the counters.

    With an ``open_end`` only the counters tell whether the run had ended.
    """
    found: int | None = None
    if processes.first:
        clear_leftovers(scratch)
        found = resume_point(scratch, most, regular)
        if found is None:
            write_checkpoint(scratch, 0, team)
    start = processes.gather(found)[0]
    counters: dict[str, float] = {"executed": 0, "lost": 0, "used": 0}
    if start is None:
        return 0, counters
    with processes.lent(folder := step_folder(scratch, start)):
        load_checkpoint(folder, team)
    for learner in learners:
        if start == 0:
            learner.policy.version = 0
        if learner.sharded is not None:
            learner.sharded.copy_in()
    if 0 < start < most or (start and open_end):
        with processes.lent(state_folder(scratch, start)):
            sampler_state, kept = load_state(scratch, start, learners, critic)
        counters |= kept
        sampler.restore(sampler_state)
    return start, counters


def _stop_together(check: Callable[[], None], processes: Processes) -> None:
    """Raise `TrainingStopped` in all processes if any of them was asked to stop."""
    stopped: TrainingStopped | None = None
    try:
        check()
    except TrainingStopped as error:
        stopped = error
    if processes.any(stopped is not None):
        raise stopped or TrainingStopped("stopped in another process; the same command continues")


def _check(
    settings: TrainSettings, sampling: Sampling, problems: Sequence[Problem], environment: Environment[Any, Any]
) -> None:
    if not problems:
        raise TrainingError("there are no problems to train on")
    if len({problem.id for problem in problems}) != len(problems):
        raise TrainingError("two training problems have the same id; ids must be distinct")
    if settings.turn_reward == "gain" and not environment.retries:
        raise TrainingError(
            "train.turn_reward: gain is for environments whose turns are attempts at the same thing; here, set it to "
            "whole"
        )
    if environment.tool_calls and (change := unfit_for_tools(settings)):
        raise TrainingError(f"an environment with tools cannot be trained so: set {change}")
    if sampling.temperature <= 0:
        raise TrainingError("rollouts.temperature must be above 0 to train: a greedy policy does not explore")
    if settings.loss.kl > 0 and (sampling.top_p < 1 or sampling.top_k > 0):
        raise TrainingError(
            f"train.loss.kl ({settings.loss.kl:g}) needs distributions with full support; set rollouts.top_p to 1 "
            "and rollouts.top_k to 0, or train.loss.kl to 0"
        )
