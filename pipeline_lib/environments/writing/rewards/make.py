"""Create a reward from settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline_lib.environment_api.custom_reward import custom_reward
from pipeline_lib.environments.writing.rewards.paper import PaperReward
from pipeline_lib.environments.writing.rewards.reward import Reward
from pipeline_lib.environments.writing.rewards.sound import SoundReward

if TYPE_CHECKING:
    from pipeline_lib.environments.writing.settings import WritingReward


def make_reward(settings: WritingReward) -> Reward:
    """Return the reward that the settings describe.

    Raises:
        ValueError: a custom class cannot be made, or its bounds are not an interval.
    """
    if settings.kind == "sound":
        return SoundReward(settings)
    if settings.kind == "paper":
        return PaperReward(settings.variant)
    made = custom_reward(settings.path, settings.options, Reward)  # type: ignore[type-abstract]
    least, greatest = getattr(made, "bounds", (0.0, 0.0))
    if not least < greatest:
        raise ValueError(
            f"environment.reward.path: {settings.path} must set its attribute 'bounds' to the least and the greatest "
            f"sum of its terms, got {(least, greatest)}"
        )
    return made
