"""The interface of a reward of two texts; a reward of your own is a subclass of `Reward` (docs/rewards.md)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline_lib.environments.writing.problems.problem import WritingProblem
from pipeline_lib.environments.writing.reading.reading import Reading

if TYPE_CHECKING:
    from pipeline_lib.environments.writing.rewards.judge import Judge


@dataclass(frozen=True, slots=True)
class Work:
    """What a team wrote.

    Attributes:
        problem: what was asked.
        first, second: the two texts.
        reading: what they tell of the source.
        mark: what a judge says of them, in [0, 1]; None where there is no judge or it said nothing.
    """

    problem: WritingProblem
    first: str
    second: str
    reading: Reading
    mark: float | None = None


class Reward(ABC):
    """Named, weighted terms.

    Attributes:
        bounds: least and greatest sum of the terms that can occur.
        judge: who marks all texts of a step before `terms` is asked; None for nobody.
    """

    bounds: tuple[float, float]
    judge: Judge | None = None

    @abstractmethod
    def terms(self, work: Work) -> dict[str, float]:
        """Return every term by name, the ones that are 0 included; the reward is their sum."""


def total(terms: Mapping[str, float]) -> float:
    """Return the reward that terms amount to; nobody adds them up in another way."""
    return float(sum(terms.values()))
