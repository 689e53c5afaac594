"""Where episodes begin, and what their random draws depend on.

Training and audit play groups: G joint actions from one state, which share a prompt and a baseline.  Evaluation plays
episodes one by one, each with its own random draws, so that episode j of a problem is paired between any two teams.

Seeds as a function of where they are used: there is no generator state, so order and batch change no random draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pipeline_lib.storage import digest


def derive(*parts: int | str | tuple[int, ...]) -> int:
    """Return a seed in [0, 2**60) that depends on every part and on nothing else."""
    return int(digest([list(part) if isinstance(part, tuple) else part for part in parts])[:15], 16)


class Problem(Protocol):
    """The part of a problem that the loop needs."""

    @property
    def id(self) -> str:
        """Return the name, unique among the problems of a run."""


class Chance(Protocol):
    """The seeds of the random draws of a root."""

    def start(self) -> int:
        """Return the seed of the environment's chance."""

    def action(self, turn: int, path: tuple[int, ...], agent: int, *again: int) -> int:
        """Return the seed of a request; ``path`` has the numbers of the joint actions that led to its state."""


@dataclass(frozen=True, slots=True)
class Root:
    """A first state."""

    problem: Any  #: the problem
    n: int  #: number of joint actions sampled in it, > 0
    chance: Chance  #: the seeds of its random draws


@dataclass(frozen=True, slots=True)
class GroupChance:
    """Seeds of a group; they depend only on the run's seed, the step, the problem and its position in the step."""

    seed: int  #: seed of the run
    step: int  #: number of the update
    name: str  #: position and id of the problem

    def start(self) -> int:
        """Return the seed of the environment's chance."""
        return derive("start", self.seed, self.step, self.name)

    def action(self, turn: int, path: tuple[int, ...], agent: int, *again: int) -> int:
        """Return the seed of a request; ``path`` holds the numbers of the joint actions that led to its state."""
        return derive("action", self.seed, self.step, self.name, turn, path, agent, *again)


@dataclass(frozen=True, slots=True)
class PairedChance:
    """Seeds of one episode; they depend only on the seed, the problem and the episode's number."""

    seed: int  #: seed of the evaluation
    problem: str  #: id of the problem
    sample: int  #: number of the episode among those of its problem, from 0

    def start(self) -> int:
        """Return the seed of the environment's chance."""
        return derive(self.seed, self.problem, self.sample, "start")

    def action(self, turn: int, path: tuple[int, ...], agent: int, *again: int) -> int:
        """Return the seed of a request; an episode never branches, so ``path`` is not needed."""
        return derive(self.seed, self.problem, self.sample, turn, agent, *again)


def groups(
    problems: Sequence[Problem], size: int, seed: int, step: int = 0, slots: Sequence[int] | None = None
) -> list[Root]:
    """Return one group of ``size`` joint actions per problem of update ``step``.

    A problem may occur twice; its groups have different random draws.  ``slots`` is the position of each problem in the
    whole step; by default 0, 1, ...
    """
    places = range(len(problems)) if slots is None else slots
    return [
        Root(problem, size, GroupChance(seed, step, f"{place}:{problem.id}"))
        for place, problem in zip(places, problems, strict=True)
    ]


def paired(problems: Sequence[Problem], samples: int, seed: int) -> list[Root]:
    """Return ``samples`` single episodes per problem, ordered by problem."""
    return [
        Root(problem, 1, PairedChance(seed, problem.id, sample)) for problem in problems for sample in range(samples)
    ]
