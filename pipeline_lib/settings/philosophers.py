"""``environment`` with ``kind: philosophers``: rules of the table, what agents see, and the reward."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from pipeline_lib.settings.base import CodeName, Section


class SoundMealsReward(Section):
    """Meals relative to the optimum, discounted by unfairness, less penalties that vanish with good behaviour."""

    kind: Literal["sound"] = "sound"
    deadlock: float = Field(0.1, ge=0, description="penalty of a deadlock in the first step; a later one costs less")
    invalid: float = Field(1.0, ge=0, description="penalty of an episode of nothing but unparseable actions")


class TermsReward(Section):
    """A weighted sum of terms of the library; the published failure is one of these, and the audit refuses it."""

    kind: Literal["terms"] = "terms"
    weights: dict[str, float] = Field(min_length=1, description="weight by term name")
    clip: tuple[float, float] | None = Field(None, description="least and greatest reward of an episode")

    @model_validator(mode="after")
    def _clip_is_an_interval(self) -> TermsReward:
        if self.clip is not None and self.clip[0] >= self.clip[1]:
            raise ValueError(f"clip: got {list(self.clip)}; the first number must be below the second")
        return self


class CustomReward(Section):
    """A reward class of your own (docs/rewards.md); its terms and bounds are its own, and so are its settings."""

    kind: Literal["custom"] = "custom"
    path: CodeName = Field(pattern=r"^[\w.]+:\w+$", description="'package.module:ClassName' of a subclass of Reward")
    options: dict[str, Any] = Field({}, description="its settings: keyword arguments, checked against its annotations")


MealsReward = Annotated[SoundMealsReward | TermsReward | CustomReward, Field(discriminator="kind")]


class PhilosophersEnvironment(Section):
    """Dining philosophers: everybody needs two forks, and shares each with a neighbour."""

    kind: Literal["philosophers"] = "philosophers"
    mode: Literal["simultaneous", "sequential"] = Field(
        "simultaneous", description="everybody acts at once, or one after another (each move is a step of time)"
    )
    prompt: Literal["compact", "default", "minimal", "symmetry_breaking", "theory_of_mind", "resource_ordering"] = (
        Field("default", description="what agents are told; compact is a line of letters for the embedded model")
    )
    message_rounds: int = Field(
        0,
        ge=0,
        le=10,
        description="0: no messages; 1: a message with every action, read in the next step; R: R - 1 rounds of "
        "messages before every action, and one with it",
    )
    message_limit: int = Field(200, ge=1, le=2000, description="characters of a message; what is longer is cut")
    memory: int = Field(0, ge=0, le=50, description="snapshots of earlier steps an agent is shown")
    memory_view: Literal["own", "everybody"] = Field(
        "own", description="snapshots show what the agent itself saw, or the whole table (as DPBench does)"
    )
    deadlock_ends: bool = Field(
        True, description="a deadlock ends the episode; else everybody puts its forks down and it goes on"
    )
    reward: MealsReward = SoundMealsReward()

    @model_validator(mode="after")
    def _compact_is_compact(self) -> PhilosophersEnvironment:
        if self.prompt == "compact" and (self.message_rounds or self.memory):
            raise ValueError(
                f"prompt compact has room for neither messages (message_rounds {self.message_rounds}) nor memory "
                f"({self.memory}); set both to 0 or choose another prompt"
            )
        return self
