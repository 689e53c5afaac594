"""Settings of agents who agree on a plan: ``environment`` with its reward, and ``problems``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pipeline_lib.settings.base import Section
from pipeline_lib.settings.environment import CustomReward, EnvironmentSection
from pipeline_lib.settings.problems import PROMPT, FamilyProblems, Prompt, SplitSizes

#: Most tokens and turns of an episode that are counted.
MOST_TOKENS, MOST_TURNS = 10_000, 16


class SoundPlanningReward(Section):
    """Weights of the default reward: the constraints that an agreed plan satisfies, less the price of the talk."""

    kind: Literal["sound"] = "sound"
    plan: float = Field(1.0, gt=0, description="a plan that both agents agreed to and that satisfies every constraint")
    constraints: float = Field(0.25, ge=0, description="share of the constraints that an agreed plan satisfies")
    token: float = Field(0.002, ge=0, description="price of a token of a message: a mark, or eight letters of a word")
    tokens: int = Field(100, ge=1, le=MOST_TOKENS, description="most tokens of an episode that are paid for")
    turn: float = Field(0.005, ge=0, description="price of a turn")


PlanningReward = Annotated[SoundPlanningReward | CustomReward, Field(discriminator="kind")]


class PlanningSettings(EnvironmentSection):
    """Two agents with constraints of their own agree on a day and a place."""

    kind: Literal["planning"] = "planning"
    team: Literal["team", "single"] = Field(
        "team", description="team: each agent knows its own constraints; single: one agent knows all and plans at once"
    )
    turns: int = Field(6, ge=2, le=MOST_TURNS, description="most turns of an episode; it ends when both have agreed")
    reward: PlanningReward = SoundPlanningReward()


class AppointmentProblems(FamilyProblems):
    """Appointments that exactly one day and place allow."""

    kind: Literal["appointments"] = "appointments"
    options: int = Field(3, ge=3, le=4, description="days, and places, that suit each agent")
    budgets: bool = Field(True, description="one place that suits both agents is too dear for one of them, or for both")
    sizes: SplitSizes = SplitSizes()
    prompt: Prompt = PROMPT
