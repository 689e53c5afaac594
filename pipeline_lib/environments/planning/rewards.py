"""The reward of a dialogue and its plan; a reward of your own is a subclass of `Reward` (docs/rewards.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline_lib.environment_api import reward
from pipeline_lib.environment_api.reward import custom_reward

if TYPE_CHECKING:
    from pipeline_lib.environments.planning.settings import PlanningReward, SoundPlanningReward

#: Of each built-in reward.
TERMS = {
    "sound": {
        "plan": "an agreed plan satisfies every constraint",
        "constraints": "share of the constraints that an agreed plan satisfies",
        "tokens": "the price of the messages",
        "turns": "the price of the turns",
    }
}


@dataclass(frozen=True, slots=True)
class Talk:
    """An episode so far."""

    stated: int  #: number of agents that have stated an agreement
    agreed: bool  #: all of them have, and to the same plan
    share: float  #: of the constraints that the agreed plan satisfies, in [0, 1]; 0 before there is one
    tokens: int  #: of all messages, as they are paid for
    turns: int  #: number of turns


class Reward(reward.Reward[Talk, float]):
    """Named, weighted terms of an episode so far; what a turn earns is what it adds to them."""


class SoundReward(Reward):
    """The default; `TERMS` says what each term means."""

    def __init__(self, weights: SoundPlanningReward, turns: int) -> None:
        self._weights = weights
        self.bounds = (
            -weights.token * weights.tokens - weights.turn * turns,
            weights.plan + weights.constraints - weights.turn,
        )

    def terms(self, talk: Talk) -> dict[str, float]:
        weights = self._weights
        return {
            "plan": weights.plan * (talk.share >= 1.0),
            "constraints": weights.constraints * talk.share,
            "tokens": -weights.token * min(talk.tokens, weights.tokens),
            "turns": -weights.turn * talk.turns,
        }


def make_reward(settings: PlanningReward, turns: int) -> Reward:
    """Return the reward that the settings describe, of episodes of at most so many turns; raises as `custom_reward`."""
    if settings.kind == "sound":
        return SoundReward(settings, turns)
    return custom_reward(settings, Reward, {"turns": turns})  # type: ignore[type-abstract]
