"""One training run of a team: what `train` needs, made from the settings."""

import contextlib
from collections.abc import Callable
from pathlib import Path

from pipeline_lib.assembly.teams import Setup, compute_dtype, sampling_of
from pipeline_lib.environment_api.metrics import describe
from pipeline_lib.environment_api.registry import find
from pipeline_lib.monitors import End
from pipeline_lib.policies.policy import section_of
from pipeline_lib.problems.splits import load_split
from pipeline_lib.training.budget import Budget
from pipeline_lib.training.parallel import ALONE, Processes
from pipeline_lib.training.trainer import TrainResult, train


def train_team(
    setup: Setup,
    seed: int,
    scratch: Path,
    budget: Budget | None = None,
    processes: Processes = ALONE,
    on_step: Callable[[int, dict[str, float]], None] = lambda step, metrics: None,
    on_checkpoint: Callable[[int, Path], None] = lambda step, folder: None,
) -> TrainResult:
    """Train the team of an environment from its base, or continue where a killed run left.

    The training split is learned from; only a curriculum looks at the validation split.

    Args:
        setup: the team and its environment.
        seed: of the run.
        scratch, budget, processes, on_step, on_checkpoint: as `train`.

    Raises:
        TrainingStopped, TrainingError: as `train`.
        ProblemsError, PolicyError: problems or base are missing, or not what the settings say.
    """
    params, task = setup.params, find(setup.section.kind)
    learned = load_split(setup.problems, "train")
    primary = describe(task.primary, task.metrics())
    # Below an adapter the base is in memory already.
    sections = [params.policy, *(section_of(params.policy, name) for name in params.policy.agents)]
    compared = params.train.loss.kl > 0 and not all(one.adapter.kind == "lora" for one in sections)
    with contextlib.closing(setup.environment()) as environment, contextlib.closing(setup.engine()) as engine:
        return train(
            settings=params.train,
            sampling=sampling_of(params),
            protocol=setup.protocol,
            environment=environment,
            team=setup.team(environment, learned, seed),
            engine=engine,
            problems=learned,
            validation=load_split(setup.problems, "validation") if params.train.curriculum.kind == "levels" else (),
            seed=seed,
            scratch=scratch,
            base=setup.team(environment, learned) if compared else None,
            compute=compute_dtype(params, setup.base),
            infra_error_share=params.sandbox.infra_error_share,
            end=End(task.primary, primary.low, primary.high),
            budget=budget,
            processes=processes,
            on_step=on_step,
            on_checkpoint=on_checkpoint,
        )
