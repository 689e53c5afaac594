"""Common parts of the ``problems`` sections of several environments: sizes of splits, and generated texts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pipeline_lib.settings.base import Section


class SplitSizes(Section):
    """Number of problems in each split."""

    train: int = Field(1024, ge=1, description="training problems")
    validation: int = Field(64, ge=1, description="problems on which checkpoints are compared and one is selected")
    test: int = Field(128, ge=1, description="held-out problems for the verdict; every look at them is counted")


class TextProblems(Section):
    """Texts that the environment draws (`pipeline_lib.text_task`)."""

    kind: Literal["texts"] = "texts"
    seed: int = Field(7, ge=0, description="seed of the draws")
    sizes: SplitSizes = SplitSizes(train=256, validation=64, test=128)
