"""Create the sampler of the settings, and play its trials.

Trials are played on validation problems with the newest weights, by the same loop as training, but without learning.
With several processes each plays its share, and all processes get all results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pipeline_lib.credit.plans import Aligned
from pipeline_lib.environment_api.environment import Environment
from pipeline_lib.play import Experience, Player, costs_of, groups, join
from pipeline_lib.training.curriculum.gates import Mastery, Plateau
from pipeline_lib.training.curriculum.samplers import Epochs, Levels, Sampler, Trial, Turns
from pipeline_lib.training.parallel import Processes

if TYPE_CHECKING:
    from pipeline_lib.settings.train import Curriculum


def make_sampler(
    settings: Curriculum,
    problems: Sequence[Any],
    validation: Sequence[Any],
    seed: int,
    environment: Environment[Any, Any],
) -> Sampler:
    """Return the sampler of a run.

    Args:
        settings: the ``train.curriculum`` section.
        problems: training problems.
        validation: validation problems; only ``levels`` needs them.
        seed: seed of the run.
        environment: its turns and the range of its reward; only ``turns`` needs them.

    Raises:
        ValueError: a level has no validation problem, or the environment has no turns to add.
    """
    if settings.kind == "epochs":
        return Epochs(len(problems), seed)
    if settings.kind == "turns":
        if not environment.retries or environment.turns < 2:
            raise ValueError(
                "train.curriculum: turns needs an environment with several turns that are attempts at the same thing; "
                "set environment.turns to 2 or more, or train.curriculum to {kind: epochs}"
            )
        low, high = environment.reward_bounds
        return Turns(len(problems), seed, environment.turns, Plateau(settings.window, settings.rise * (high - low)))
    mastery = Mastery(settings.metric, settings.bound, settings.better == "lower")
    return Levels(problems, validation, mastery, settings.replay, settings.every, settings.episodes, seed)


def play_trial(
    sampler: Sampler, validation: Sequence[Any], player: Player, seed: int, step: int, processes: Processes
) -> dict[str, float]:
    """Play the trial that is due after a step, if any, and return metrics for the log, ``costs/`` among them."""
    chosen = sampler.trial(step)
    if not chosen:
        return {}
    slots = processes.share(range(len(chosen)))
    roots = groups([validation[chosen[slot]] for slot in slots], sampler.episodes, seed, step, slots)
    parts = processes.gather(replace(player, tree=False, plan=Aligned()).play(roots))
    whole = join(parts)
    return sampler.record(read_trial(whole)) | costs_of(whole)


def read_trial(experience: Experience) -> Trial:
    """Return the results of a trial's episodes; episodes that the infrastructure lost have no metrics."""
    metrics = []
    returns: dict[int, list[float | None]] = {}
    for episode in experience.episodes():
        lost = any(decision.reward is None for decision in episode)
        total = None if lost else sum(decision.reward or 0.0 for decision in episode)
        returns.setdefault(episode[0].group, []).append(total)
        if not lost:
            metrics.append(dict(episode[-1].metrics))
    return Trial(tuple(metrics), tuple(tuple(values) for values in returns.values()))
