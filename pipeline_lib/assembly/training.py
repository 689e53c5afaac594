"""One training run of a team: what `train` needs, made from the settings."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_lib.assembly.teams import base_team, compute_dtype, sampling_of
from pipeline_lib.environment_api.metrics import describe
from pipeline_lib.environment_api.registry import find
from pipeline_lib.environments.make import make_environment
from pipeline_lib.monitors.judge import End
from pipeline_lib.policies.agents import section_of
from pipeline_lib.problems.splits import load_split
from pipeline_lib.rollouts import make_engine
from pipeline_lib.training.budget import Budget
from pipeline_lib.training.parallel import ALONE, Processes
from pipeline_lib.training.trainer import TrainResult, train

if TYPE_CHECKING:
    from pipeline_lib.protocols import Protocol
    from pipeline_lib.settings import Params


def train_team(
    params: Params,
    section: Any,
    protocol: Protocol,
    problems: Path,
    base: Path,
    seed: int,
    scratch: Path,
    budget: Budget | None = None,
    processes: Processes = ALONE,
    on_step: Callable[[int, dict[str, float]], None] = lambda step, metrics: None,
    on_checkpoint: Callable[[int, Path], None] = lambda step, folder: None,
) -> TrainResult:
    """Train the team of an environment from its base, or continue where a killed run left.

    Args:
        params: the settings.
        section: the environment the team acts in.
        protocol: how it answers.
        problems: folder of prepared problems; the training split is learned from, and the validation split is looked
            at by a curriculum only.
        base: folder of the base policy.
        seed: of the run.
        scratch, budget, processes, on_step, on_checkpoint: as `train`.

    Raises:
        TrainingStopped, TrainingError: as `train`.
        ProblemsError, PolicyError: problems or base are missing, or not what the settings say.
    """
    learned = load_split(problems, "train")
    task = find(section.kind)
    primary = describe(task.primary, task.metrics())
    with (
        contextlib.closing(make_environment(section, params.sandbox)) as environment,
        contextlib.closing(make_engine(params.rollouts, params.policy)) as engine,
    ):
        # Below an adapter the base is in memory already.
        sections = [params.policy, *(section_of(params.policy, name) for name in params.policy.agents)]
        compared = params.train.loss.kl > 0 and not all(one.adapter.kind == "lora" for one in sections)
        return train(
            settings=params.train,
            sampling=sampling_of(params),
            protocol=protocol,
            environment=environment,
            team=base_team(params, base, environment, learned, seed),
            engine=engine,
            problems=learned,
            validation=load_split(problems, "validation") if params.train.curriculum.kind == "levels" else (),
            seed=seed,
            scratch=scratch,
            base=base_team(params, base, environment, learned) if compared else None,
            compute=compute_dtype(params, base),
            infra_error_share=params.sandbox.infra_error_share,
            end=End(task.primary, primary.low, primary.high),
            budget=budget,
            processes=processes,
            on_step=on_step,
            on_checkpoint=on_checkpoint,
        )
