"""What all settings models have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """An immutable group of settings; unknown keys are refused, defaults are checked like given values."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)
