"""``environment``: the task a team acts in and the terms of its reward."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pipeline_lib.settings.base import Section
from pipeline_lib.settings.philosophers import CustomReward, PhilosophersEnvironment


class SoundCodingReward(Section):
    """Weights of the default reward: syntax tree and ablation decide on cooperation, hidden tests on the rest."""

    kind: Literal["sound"] = "sound"
    structure: float = Field(0.4, ge=0, description="share of the functions that are defined and return a value")
    syntax: float = Field(0.2, ge=0, description="everything the agents wrote parses")
    tests: float = Field(1.0, gt=0, description="fraction of hidden tests passed")
    cooperation: float = Field(0.4, ge=0, description="the main function calls the helper and needs it to pass")
    above_none: bool = Field(
        False,
        description=(
            "count only tests beyond those that a program returning None passes, rescaled to the same maximum; "
            "published datasets hold a few problems where that matters"
        ),
    )


class PaperCodingReward(Section):
    """The published reward of MAGRPO (arXiv 2508.04652), at most 4.0; kept for comparison, the audit refuses it."""

    kind: Literal["paper"] = "paper"


CodingReward = Annotated[SoundCodingReward | PaperCodingReward | CustomReward, Field(discriminator="kind")]


class CodingEnvironment(Section):
    """A helper function and a main function are written by two agents and executed together."""

    kind: Literal["coding"] = "coding"
    team: Literal["pair", "single"] = Field(
        "pair", description="pair: helper and main agent; single: one agent sees everything and writes both functions"
    )
    turns: int = Field(1, ge=1, le=8, description="turns per problem; later turns see feedback")
    feedback: Literal["plain", "tests"] = Field(
        "tests", description="what later turns see: their own previous code, or that and the visible tests' results"
    )
    stop_at: float = Field(
        1.0, gt=0, le=1, description="an episode ends early when a turn's reward reaches this share of the greatest one"
    )
    reward: CodingReward = SoundCodingReward()


Environment = Annotated[CodingEnvironment | PhilosophersEnvironment, Field(discriminator="kind")]
