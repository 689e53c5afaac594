"""Settings of the philosophers: ``environment`` (rules of the table, what agents see, reward), and ``problems``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline_lib.settings.base import Section
from pipeline_lib.settings.environment import CustomReward, EnvironmentSection
from pipeline_lib.settings.problems import SplitSizes


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


MealsReward = Annotated[SoundMealsReward | TermsReward | CustomReward, Field(discriminator="kind")]


class PhilosophersEnvironment(EnvironmentSection):
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


class ScenarioFamily(Section):
    """A population of philosophers' tables; every scenario is one draw from it."""

    philosophers: tuple[int, ...] = Field((5,), min_length=1, description="table sizes, 2 to 50; they take turns")
    graphs: tuple[Literal["ring", "chain", "grid"], ...] = Field(
        ("ring",), min_length=1, description="who shares a fork with whom; they take turns"
    )
    labels: Literal["seat", "shuffled", "anonymous"] = Field(
        "seat", description="philosophers go by their seat's number, by numbers drawn at random, or by none"
    )
    priority: Literal["seat", "shuffled"] = Field(
        "shuffled", description="who wins a contested fork: the lower seat, or an order drawn at random"
    )
    held: float = Field(0.3, ge=0, le=1, description="chance that a philosopher starts with a fork in hand")
    eating_time: tuple[int, ...] = Field((1,), min_length=1, description="steps a meal lasts; one of these is drawn")
    horizon: tuple[int, ...] = Field((30,), min_length=1, description="steps of an episode; one of these is drawn")
    wordings: int = Field(1, ge=1, le=3, description="ways in which the prompt may be worded")

    @model_validator(mode="after")
    def _playable(self) -> ScenarioFamily:
        for name, values, low, high in (
            ("philosophers", self.philosophers, 2, 50),
            ("eating_time", self.eating_time, 1, 100),
            ("horizon", self.horizon, 1, 10_000),
        ):
            if wrong := [value for value in values if not low <= value <= high]:
                raise ValueError(f"{name}: got {wrong[0]}; accepted: {low} to {high}")
        return self


class ScenarioProblems(Section):
    """Seeded scenarios of dining philosophers."""

    kind: Literal["scenarios"] = "scenarios"
    seed: int = Field(7, ge=0, description="seed of the draws")
    sizes: SplitSizes = SplitSizes(train=512, validation=64, test=128)
    family: ScenarioFamily = Field(ScenarioFamily(), description="what the splits are drawn from")
    published_test: tuple[int, ...] = Field(
        (),
        description="table sizes of DPBench's published condition that make up the test split; empty: drawn like train",
    )

    @model_validator(mode="after")
    def _published_sizes(self) -> ScenarioProblems:
        if wrong := [n for n in self.published_test if not 2 <= n <= 50]:
            raise ValueError(f"published_test: got {wrong[0]}; accepted: 2 to 50")
        return self
