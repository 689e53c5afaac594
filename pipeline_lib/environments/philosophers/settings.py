"""Settings of the philosophers: ``environment`` (rules of the table, what agents see, reward), and ``problems``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline_lib.settings.base import Section
from pipeline_lib.settings.environment import CustomReward, EnvironmentSection
from pipeline_lib.settings.problems import SplitSizes

#: Fewest and most philosophers a table seats.
SEATS = (2, 50)
#: Fewest and most steps of an episode.
HORIZONS = (1, 10_000)


class SoundMealsReward(Section):
    """Meals relative to the optimum, discounted by unfairness, minus penalties that vanish with good behaviour."""

    kind: Literal["sound"] = "sound"
    deadlock: float = Field(0.1, ge=0, description="penalty of a deadlock in the first step; a later one costs less")
    invalid: float = Field(1.0, ge=0, description="penalty of an episode in which all actions are unparseable")


class TermsReward(Section):
    """A weighted sum of the library's terms; the published failure is one of these, and the audit refuses it."""

    kind: Literal["terms"] = "terms"
    weights: dict[str, float] = Field(min_length=1, description="weight by term name")
    clip: tuple[float, float] | None = Field(None, description="least and greatest reward of an episode")

    @model_validator(mode="after")
    def _clip_is_an_interval(self) -> TermsReward:
        if self.clip is not None and self.clip[0] >= self.clip[1]:
            raise ValueError(f"clip: got {list(self.clip)}; the first number must be below the second")
        return self


MealsReward = Annotated[SoundMealsReward | TermsReward | CustomReward, Field(discriminator="kind")]


class PhilosophersSettings(EnvironmentSection):
    """Dining philosophers: every philosopher needs two forks and shares each of them with a neighbour."""

    kind: Literal["philosophers"] = "philosophers"
    mode: Literal["simultaneous", "sequential"] = Field(
        "simultaneous", description="all act at the same time, or one after another (each move is a step of time)"
    )
    prompt: Literal["compact", "default", "minimal", "symmetry_breaking", "theory_of_mind", "resource_ordering"] = (
        Field("default", description="prompt of the agents; compact is a line of letters for the embedded model")
    )
    message_rounds: int = Field(
        0,
        ge=0,
        le=10,
        description="0: no messages; 1: a message with every action, read in the next step; R: R - 1 rounds of "
        "messages before every action, and one with it",
    )
    message_limit: int = Field(200, ge=1, le=2000, description="characters of a message; longer messages are cut")
    memory: int = Field(0, ge=0, le=50, description="snapshots of earlier steps that an agent is shown")
    memory_view: Literal["own", "everybody"] = Field(
        "own", description="snapshots show what the agent itself saw, or the whole table (as DPBench does)"
    )
    deadlock_ends: bool = Field(
        True, description="a deadlock ends the episode; otherwise all put their forks down and the episode continues"
    )
    reward: MealsReward = SoundMealsReward()

    @model_validator(mode="after")
    def _compact_is_compact(self) -> PhilosophersSettings:
        if self.prompt == "compact" and (self.message_rounds or self.memory):
            raise ValueError(
                f"prompt compact has no space for messages (message_rounds {self.message_rounds}) or memory "
                f"({self.memory}); set both to 0 or choose another prompt"
            )
        return self


class ScenarioFamily(Section):
    """A population of tables; every scenario is one random draw from it."""

    philosophers: tuple[int, ...] = Field((5,), min_length=1, description="table sizes, 2 to 50; used in turn")
    graphs: tuple[Literal["ring", "chain", "grid"], ...] = Field(
        ("ring",), min_length=1, description="which philosophers share a fork; used in turn"
    )
    labels: Literal["seat", "shuffled", "anonymous"] = Field(
        "seat", description="philosophers have the number of their seat, a random number, or none"
    )
    priority: Literal["seat", "shuffled"] = Field(
        "shuffled", description="who gets a fork that two want: the lower seat, or by a random order"
    )
    held: float = Field(0.3, ge=0, le=1, description="probability that a philosopher starts with a fork")
    eating_time: tuple[int, ...] = Field(
        (1,), min_length=1, description="steps of a meal; one of these is drawn at random"
    )
    horizon: tuple[int, ...] = Field(
        (30,), min_length=1, description="steps of an episode; one of these is drawn at random"
    )
    wordings: int = Field(1, ge=1, le=3, description="number of wordings of the prompt")

    @model_validator(mode="after")
    def _playable(self) -> ScenarioFamily:
        for name, values, low, high in (
            ("philosophers", self.philosophers, *SEATS),
            ("eating_time", self.eating_time, 1, 100),
            ("horizon", self.horizon, *HORIZONS),
        ):
            if wrong := [value for value in values if not low <= value <= high]:
                raise ValueError(f"{name}: got {wrong[0]}; accepted: {low} to {high}")
        return self


class ScenarioProblems(Section):
    """Seeded scenarios of dining philosophers."""

    kind: Literal["scenarios"] = "scenarios"
    seed: int = Field(7, ge=0, description="seed of the random draws")
    sizes: SplitSizes = SplitSizes(train=512, validation=64, test=128)
    family: ScenarioFamily = Field(ScenarioFamily(), description="population that the splits are drawn from")
    published_test: tuple[int, ...] = Field(
        (),
        description="table sizes of DPBench's published condition that make up the test split; empty: drawn like train",
    )

    @model_validator(mode="after")
    def _published_sizes(self) -> ScenarioProblems:
        if wrong := [n for n in self.published_test if not 2 <= n <= 50]:
            raise ValueError(f"published_test: got {wrong[0]}; accepted: 2 to 50")
        return self
