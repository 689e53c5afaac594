"""The published reward as an environment's reward; it never looks at the source."""

from __future__ import annotations

from typing import Literal

from pipeline_lib.environments.writing.published.levels import CONSTANTS, GREATEST, published_terms
from pipeline_lib.environments.writing.rewards.reward import Reward, Work


class PaperReward(Reward):
    """The published levels, with the constants that belong to the problem's task."""

    bounds = (0.0, GREATEST)

    def __init__(self, variant: Literal["paper", "later"]) -> None:
        self._variant = variant

    def terms(self, work: Work) -> dict[str, float]:
        """Return the five terms of `published_terms`."""
        return published_terms(work.first, work.second, CONSTANTS[work.problem.task, self._variant])
