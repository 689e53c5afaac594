"""Settings of the matching halves."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pipeline_lib.settings.base import Section
from pipeline_lib.settings.environment import EnvironmentSection
from pipeline_lib.settings.problems import SplitSizes


class HalvesEnvironment(EnvironmentSection):
    """A letter each; ``kind`` is left to the name by which it was found."""

    turns: int = Field(1, ge=1, le=4, description="tries; later ones tell what the other wrote")
    match: float = Field(1.0, gt=0, description="reward of two equal letters")
    form: float = Field(0.2, ge=0, description="reward of two single letters, equal or not")


class WordProblems(Section):
    """Words made at random, which make every problem another one and say nothing of the letter."""

    kind: Literal["words"] = "words"
    seed: int = Field(7, ge=0, description="seed of the draws")
    sizes: SplitSizes = SplitSizes(train=64, validation=12, test=16)
