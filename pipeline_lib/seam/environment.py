"""The seam between a task and everything that runs a team on it.

An environment is a cooperative Dec-POMDP (Oliehoek & Amato, 2016): every agent sees its own observation (text), all
act at once (text), and one joint reward comes back.  It is batched: `step` takes many states at once, so that
programs are executed, and philosophers moved, side by side.  States are values; `step` returns new ones and never
changes the old, so several continuations of one state can be sampled (the tree of MAGRPO's multi-turn variant).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pipeline_lib.seam.exhibit import Exhibit

P = TypeVar("P")  # the problem type
S = TypeVar("S")  # the state type


@dataclass(frozen=True, slots=True)
class Outcome(Generic[S]):
    """What one joint action led to.

    Attributes:
        reward: the joint reward of this turn, or None when no reward can be given because the infrastructure failed;
            such an outcome is left out of training and counted, never scored as 0.
        terms: every weighted reward term by name; they sum to ``reward``.
        metrics: unweighted quantities of this turn (for coding: ``tests_passed`` in [0, 1], ``all_passed`` 0/1,
            ``cooperation`` 0/1, ...); evaluation and report read them, training only logs them.
        state: the state in which the next turn starts.
        done: no further turn follows.
        details: JSON-like facts for the report (cooperation scheme, verdict status, error text); never used as reward.
    """

    reward: float | None
    terms: Mapping[str, float]
    metrics: Mapping[str, float]
    state: S
    done: bool
    details: Mapping[str, Any] = field(default_factory=dict)


class Environment(ABC, Generic[P, S]):
    """A cooperative task for a team."""

    #: Largest number of turns in an episode.
    turns: int
    #: Least and greatest reward of one turn; early termination and reports are relative to the greatest.
    reward_bounds: tuple[float, float]

    @abstractmethod
    def agents(self, problem: P) -> tuple[str, ...]:
        """Return the names of the agents that act on ``problem``, in acting order."""

    @abstractmethod
    def start(self, problem: P, seed: int = 0) -> S:
        """Return the first state of an episode; ``seed`` fixes whatever chance the environment has."""

    @abstractmethod
    def observe(self, state: S, agent: int) -> str:
        """Return what agent number ``agent`` sees in ``state``: the text its policy is prompted with."""

    def acting(self, state: S) -> Sequence[int] | None:
        """Return the numbers of the agents whose action counts in this turn; None means all of them.

        Turn-taking environments override it.  The others' texts are ignored: nothing need be sampled for them (pass
        an empty text), and nothing is learned from what they did not choose.
        """
        return None

    @abstractmethod
    def step(self, states: Sequence[S], joint_actions: Sequence[Sequence[str]]) -> list[Outcome[S]]:
        """Apply one joint action (a text per agent) to each state, in input order.

        Untrusted text is only ever executed by the sandbox.  Problems of the infrastructure become outcomes with
        ``reward=None``; they do not raise.
        """

    def exhibit(self, state: S, actions: Sequence[str]) -> Exhibit:
        """Return for people what a joint action amounts to.

        Args:
            state: the state in which it was taken, or the one that `step` led to, which may know what came of it.
            actions: a text per agent; empty for those that did not act.
        """
        return Exhibit("\n\n".join(text.strip("\n") for text in actions if text.strip()))

    def close(self) -> None:
        """Free what the environment holds (worker processes); calling it twice is fine."""
