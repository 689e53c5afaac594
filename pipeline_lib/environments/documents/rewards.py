"""The reward of a dialogue and its answer; a reward of your own is a subclass of `Reward` (docs/rewards.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline_lib.environment_api import reward
from pipeline_lib.environment_api.reward import custom_reward
from pipeline_lib.environments.documents.reading import Answer

if TYPE_CHECKING:
    from pipeline_lib.environments.documents.settings import DocumentsReward, SoundDocumentsReward

#: Of each built-in reward.
TERMS = {
    "sound": {
        "answer": "the answer is right",
        "support": "facts that are named and prove the answer, as a share of all that are named or needed",
        "wrong": "taken for a wrong answer",
        "made_up": "taken for named facts that the asker has not read",
        "tokens": "the price of the messages",
        "turns": "the price of the turns",
    }
}


@dataclass(frozen=True, slots=True)
class Talk:
    """An episode so far."""

    answer: Answer | None  #: None before the asker answers
    tokens: int  #: of all messages, as they are paid for
    turns: int  #: number of turns


class Reward(reward.Reward[Talk, float]):
    """Named, weighted terms of an episode so far; what a turn earns is what it adds to them."""


class SoundReward(Reward):
    """The default; `TERMS` says what each term means."""

    def __init__(self, weights: SoundDocumentsReward, turns: int) -> None:
        self._weights = weights
        worst = weights.wrong + weights.made_up + weights.token * weights.tokens + weights.turn * turns
        self.bounds = (-worst, weights.answer + weights.support - weights.turn)

    def terms(self, talk: Talk) -> dict[str, float]:
        weights, answer = self._weights, talk.answer
        return {
            "answer": weights.answer * (answer is not None and answer.right),
            "support": weights.support * (answer.support if answer else 0.0),
            "wrong": -weights.wrong * (answer is not None and not answer.right),
            "made_up": -weights.made_up * (answer.made_up if answer else 0.0),
            "tokens": -weights.token * min(talk.tokens, weights.tokens),
            "turns": -weights.turn * talk.turns,
        }


def make_reward(settings: DocumentsReward, turns: int) -> Reward:
    """Return the reward that the settings describe, of episodes of at most so many turns; raises as `custom_reward`."""
    if settings.kind == "sound":
        return SoundReward(settings, turns)
    return custom_reward(settings, Reward, {"turns": turns})  # type: ignore[type-abstract]
