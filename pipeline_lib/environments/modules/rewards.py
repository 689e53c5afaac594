"""The reward of a joint program: named, weighted terms of its facts.

A reward never sees text and never runs anything.  A reward of your own is a subclass of `Reward` (docs/rewards.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline_lib.environment_api import reward
from pipeline_lib.environment_api.reward import custom_reward
from pipeline_lib.environments.modules.program import Form

if TYPE_CHECKING:
    from pipeline_lib.environments.modules.settings import ModulesReward, SoundModulesReward

#: Of each built-in reward.
TERMS = {
    "sound": {
        "form": "the share of the parts that parse and define what they must",
        "unit": "the share of a part's hidden tests that it passes among right parts, mean over the parts",
        "system": "the share of the hidden tests of the whole program that it passes",
    }
}


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one joint action."""

    forms: Mapping[str, Form]  #: of each part
    units: Mapping[str, float]  #: of each part, the share of its tests that it passes among right parts, in [0, 1]
    system: float  #: share of the tests of the whole program that it passes, in [0, 1]

    @property
    def defined(self) -> float:
        """Return the share of the parts that define what they must."""
        return _mean([form.defines for form in self.forms.values()])

    @property
    def unit(self) -> float:
        """Return the share of tests of parts that pass, each part counted equally."""
        return _mean(list(self.units.values()))


class Reward(reward.Reward[Facts, float]):
    """Named, weighted terms of a joint program."""

    def of_parts(self, facts: Facts) -> dict[str, float]:
        """Return what the agent of each part earns by itself, for its form and its own tests alone, within the bounds.

        Tests of the whole program say nothing of a single part, so a part's own tests count in their place.
        """
        high = self.bounds[1]
        return {part: high * (0.1 * facts.forms[part].defines + 0.9 * share) for part, share in facts.units.items()}


class SoundReward(Reward):
    """The default: tests of the system, tests of the parts, and form; `TERMS` says what each means.

    The tests of a part alone can be satisfied by parts that do not fit together, and form by nothing at all: both
    together must weigh less than the tests of the system (the audit checks it).
    """

    def __init__(self, weights: SoundModulesReward) -> None:
        self._weights = weights
        self.bounds = (0.0, weights.form + weights.unit + weights.system)

    def terms(self, facts: Facts) -> dict[str, float]:
        return {
            "form": self._weights.form * facts.defined,
            "unit": self._weights.unit * facts.unit,
            "system": self._weights.system * facts.system,
        }


def make_reward(settings: ModulesReward) -> Reward:
    """Return the reward that the settings describe; raises as `custom_reward`."""
    if settings.kind == "sound":
        return SoundReward(settings)
    return custom_reward(settings, Reward)  # type: ignore[type-abstract]


def _mean(values: list[float] | list[bool]) -> float:
    return sum(values) / len(values)
