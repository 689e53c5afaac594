"""What the ``problems`` sections of different environments have in common: the sizes of the splits."""

from __future__ import annotations

from pydantic import Field

from pipeline_lib.settings.base import Section


class SplitSizes(Section):
    """How many problems each split holds."""

    train: int = Field(1024, ge=1, description="problems to learn from")
    validation: int = Field(64, ge=1, description="problems on which checkpoints are compared and one is selected")
    test: int = Field(128, ge=1, description="problems for the verdict; every look at them is counted")
