"""The interface of a reward of two texts; a reward of your own is a subclass of `Reward` (docs/rewards.md)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipeline_lib.environments.writing.problems.problem import WritingProblem
from pipeline_lib.environments.writing.reading.reading import Reading

if TYPE_CHECKING:
    from pipeline_lib.environments.writing.rewards.judge import Judge


@dataclass(frozen=True, slots=True)
class Work:
    """The texts of a team.

    Attributes:
        problem: the problem.
        first, second: the two texts.
        reading: the analysis of the texts.
        mark: a judge's mark, in [0, 1]; None if there is no judge or it gave none.
        costs: what the mark cost, amounts by name.
    """

    problem: WritingProblem
    first: str
    second: str
    reading: Reading
    mark: float | None = None
    costs: Mapping[str, float] = field(default_factory=dict)


class Reward(ABC):
    """Named, weighted terms.

    Attributes:
        bounds: least and greatest sum of the terms that can occur.
        judge: marks all texts of a step before `terms` is called; None if there is none.
    """

    bounds: tuple[float, float]
    judge: Judge | None = None

    @abstractmethod
    def terms(self, work: Work) -> dict[str, float]:
        """Return every term by name, including those that are 0; the reward is their sum."""


def total(terms: Mapping[str, float]) -> float:
    """Return the sum of the terms, which is the reward."""
    return float(sum(terms.values()))
