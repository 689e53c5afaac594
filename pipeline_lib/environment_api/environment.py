"""The interface between a task and all code that runs a team on it.

An environment is a cooperative Dec-POMDP (Oliehoek & Amato, 2016): every agent sees its own observation (text), all act
at once (text), and the environment returns one joint reward.  It is batched: `step` takes many states at once, so that
programs are executed, and philosophers moved, side by side.  States are values: `step` returns new ones and never
changes the old ones, so several continuations of one state can be sampled (the tree of MAGRPO's multi-turn variant).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pipeline_lib.environment_api.metrics import GREATEST

P = TypeVar("P")  # the problem type
S = TypeVar("S")  # the state type


@dataclass(frozen=True, slots=True)
class ToolCall(Generic[S]):
    """What an agent wrote, which may call a tool."""

    state: S  #: the state in which the turn began
    agent: int  #: number of the agent
    #: By number of the agent, what each wrote last in this turn, so of those that act at the same time too; empty for
    #: those that wrote nothing yet.
    texts: tuple[str, ...]

    @property
    def text(self) -> str:
        """Return what the agent itself wrote."""
        return self.texts[self.agent]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of it."""

    #: What the agent reads before it writes on; None if it called no tool, so that its text is its answer.
    text: str | None = None
    error: str = ""  #: why the infrastructure could not run the tool, else empty; the joint action then gets no reward


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the joint result."""

    what: str  #: the question, for example a test's source
    passed: bool  #: whether it succeeded
    answer: str = ""  #: the actual answer, one line; empty if there is nothing to add


@dataclass(frozen=True, slots=True)
class Exhibit:
    """The joint result and its checks."""

    text: str  #: the result
    language: str = ""  #: its language, as syntax highlighters name it; empty for prose
    #: In the order in which they were made; empty if the environment has no checks, or nothing was run.
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an agent's observation."""

    source: str  #: where it comes from, in a word or two; empty for words that only join the others
    text: str  #: the part, with its line ends; all parts joined are the observation


@dataclass(frozen=True, slots=True)
class Outcome(Generic[S]):
    """The result of one joint action."""

    #: The joint reward of this turn, or None if the infrastructure failed; such an outcome is left out of training and
    #: counted, never scored as 0.
    reward: float | None
    terms: Mapping[str, float]  #: all weighted reward terms by name; their sum is ``reward``
    #: Unweighted quantities of this turn (for coding: ``tests_passed`` in [0, 1], ``all_passed`` 0/1, ``cooperation``
    #: 0/1, ...); evaluation and report read them, training only logs them.
    metrics: Mapping[str, float]
    state: S  #: the state in which the next turn starts
    done: bool  #: whether the episode has ended
    #: JSON-like facts for the report (cooperation scheme, verdict status, error text); never used as reward.  Monitors
    #: of training read two of them: ``caused_by``, of a failure, the agent of `Environment.relied_on` whose part broke
    #: another's, or an empty string; and ``visible``, the share of the tests passed that agents may see, where the
    #: primary metric is the share of hidden ones.  ``costs``, amounts by name, counts what was paid for outside this
    #: project, and what a critic sampled; training and evaluation add them up.
    details: Mapping[str, Any] = field(default_factory=dict)
    #: What each agent earns by itself, by name, on the scale of ``reward``, where `Task.rewards_agents` says so;
    #: ``train.individual_reward`` trains agents on it.  Tests and the audit are of the joint reward.
    agent_rewards: Mapping[str, float] = field(default_factory=dict)


class RewardError(ValueError):
    """A reward, or a metric, is not what it declares; the message says what to do."""


#: Relative tolerance for equal returns: rounding errors of sums in another order are no signal.
EQUAL = 1e-9
#: Greatest size of a reward: gradients are numbers of 32 bits, and their norm squares them.
LARGEST = 1e15


def refuse_outside(what: str, reward: float, terms: Mapping[str, float], bounds: tuple[float, float]) -> None:
    """Check what a joint action or an episode earned against bounds; raises RewardError if it is outside."""
    low, high = bounds
    slack = 1e-6 * max(1.0, abs(low), abs(high))
    if not low - slack <= reward <= high + slack:
        parts = ", ".join(f"{name} {value:g}" for name, value in terms.items())
        raise RewardError(
            f"{what} earned {reward:g} ({parts}), but the reward declares {low:g} to {high:g}, and the audit has "
            "judged it by that; correct the bounds of the reward, and run the audit again"
        )


def why_unusable(low: float, high: float) -> str:
    """Return why rewards between these bounds cannot be learned from; empty if they can.

    They are not finite or too great to compute with, or no two rewards differ by enough.
    """
    if not -LARGEST <= low <= high <= LARGEST:
        return f"needs two numbers from {-LARGEST:g} to {LARGEST:g}, the least first"
    if 0 < high - low <= EQUAL * max(1.0, abs(low), abs(high)):
        return f"leaves no difference that counts: up to {EQUAL:g} (relative, if rewards are above 1) is rounding"
    return ""


class Environment(ABC, Generic[P, S]):
    """A cooperative task for a team."""

    #: Largest number of turns in an episode.
    turns: int
    #: Smallest and greatest possible reward of one turn; early termination and reports are relative to the greatest.
    reward_bounds: tuple[float, float]
    #: Agents on whose parts other agents build; their part can break another's.
    relied_on: tuple[str, ...] = ()
    #: Whether every turn is an attempt at the same thing, so that a later one should not be worse.
    retries: bool = False
    #: Whether ``details`` must say of every last turn by what agents could choose it among attempts: ``visible``, the
    #: share of the visible tests passed, or ``answer``, a text that is equal for equal answers (`Task.chosen_by`).
    for_choice: bool = False
    #: Whether the base of each agent, which nobody trains, answers between turns (`criticised`).
    has_critic: bool = False
    #: Most calls of a tool by an agent within a turn (`use_tools`); 0: there is none.
    tool_calls: int = 0
    #: Most tokens that an agent reads of a result; longer ones are cut.
    tool_tokens: int = 128

    @property
    def paid_by(self) -> object:
        """What computes the reward: an object or function, or a tuple of them; the audit reads its source for words."""
        return self

    def refuse_unusable_bounds(self) -> None:
        """Check that rewards within `reward_bounds` can be learned from.

        Raises:
            RewardError: they cannot (`why_unusable`).
        """
        low, high = self.reward_bounds
        if why := why_unusable(low, high):
            raise RewardError(
                f"reward_bounds of the environment {type(self).__name__} are {low:g} to {high:g}; training {why}. "
                "Scale the reward, and correct its bounds"
            )

    @staticmethod
    def refuse_unusable_metrics(outcomes: Sequence[Outcome[S]]) -> None:
        """Check that metrics are numbers that can be computed with; raises RewardError if one is not."""
        for outcome in outcomes:
            for name, value in outcome.metrics.items():
                if not abs(value) <= GREATEST:
                    raise RewardError(
                        f"the metric '{name}' of a joint action is {value}; it must be a number from {-GREATEST:g} to "
                        f"{GREATEST:g}. Correct the environment; an episode that could not be judged has no reward "
                        "(None) and no metrics"
                    )

    def refuse_unusable_tools(self) -> None:
        """Check the limits of tools.

        Raises:
            ValueError: `tool_calls` is below 0, or there are tools and `tool_tokens` is below 1.
        """
        if self.tool_calls < 0 or (self.tool_calls and self.tool_tokens < 1):
            raise ValueError(
                f"{type(self).__name__} has tool_calls {self.tool_calls} and tool_tokens {self.tool_tokens}; set them "
                "to 1 or more, or tool_calls to 0"
            )

    def ask_tools(self, calls: Sequence[ToolCall[S]]) -> list[ToolResult]:
        """Return what `use_tools` does; TypeError if it does not answer each text with a `ToolResult`."""
        results = self.use_tools(calls)
        right = isinstance(results, Sequence) and len(results) == len(calls)
        if not right or not all(isinstance(r, ToolResult) and isinstance(r.text, str | None) for r in results):
            name = type(self).__name__
            raise TypeError(f"use_tools() of {name} must return a ToolResult for each of {len(calls)} texts")
        return results

    def refuse_outside_bounds(self, outcomes: Sequence[Outcome[S]]) -> None:
        """Check rewards against `reward_bounds`, on which the audit of the reward and the worst case of losses rest.

        Raises:
            RewardError: one is outside.
        """
        for outcome in outcomes:
            if outcome.reward is not None:
                refuse_outside("a joint action", outcome.reward, outcome.terms, self.reward_bounds)

    @property
    def episode_bounds(self) -> tuple[float, float]:
        """Smallest and greatest reward of an episode: of its last turn where turns are attempts, else of their sum."""
        least, greatest = self.reward_bounds
        if self.retries:
            return least, greatest
        return min(least, least * self.turns), max(greatest, greatest * self.turns)

    @abstractmethod
    def agents(self, problem: P) -> tuple[str, ...]:
        """Return the names of the agents that act on ``problem``, in acting order."""

    @abstractmethod
    def start(self, problem: P, seed: int = 0) -> S:
        """Return the first state of an episode; ``seed`` determines all randomness of the environment."""

    @abstractmethod
    def observe(self, state: S, agent: int) -> str:
        """Return the observation of agent number ``agent`` in ``state``, the prompt of its policy."""

    def shortened(self, state: S, agent: int, cut: int) -> str | None:
        """Return the observation without the ``cut`` oldest turns of the history that it shows.

        It is asked for if an observation leaves too little room for an action in the policy's context.

        Returns:
            The observation; None if that many turns cannot be cut, because none would be left.
        """
        return None

    def criticised(self, state: S, texts: Mapping[int, str]) -> S:
        """Return the state with what the critic wrote, for agents to see in the next turn.

        It is called with ``has_critic``, after a joint action with which the episode did not end.

        Args:
            state: the state in which the next turn starts.
            texts: by number of the agent, what its own base, untrained, answered to its observation of ``state``.
        """
        raise NotImplementedError(f"{type(self).__name__} has a critic, so it must define criticised()")

    def use_tools(self, calls: Sequence[ToolCall[S]]) -> list[ToolResult]:
        """Run the tools that agents call; a result for each text, in input order.

        It is called with ``tool_calls`` above 0, with every text that an agent has finished and after which it may
        still call a tool.  An agent that called one reads the result and writes again; what it writes last is its
        action.  Equal calls have equal results, and no state is changed.
        """
        raise NotImplementedError(f"{type(self).__name__} has tool_calls, so it must define use_tools()")

    def parts(self, state: S, agent: int) -> Sequence[Part]:
        """Return the observation of agent number ``agent`` in parts with their sources, for display."""
        return (Part("task", self.observe(state, agent)),)

    def acting(self, state: S) -> Sequence[int] | None:
        """Return the numbers of the agents whose action counts in this turn; None means all of them.

        Environments in which agents act one after the other override this.  The texts of the other agents are ignored:
        pass empty texts for them.  They are not trained on this turn.
        """
        return None

    def ending(self, state: S) -> S:
        """Return the state with its next turn as the last one, because the caller plays no further.

        Environments that prepare a further turn, such as feedback that somebody pays for, override this.
        """
        return state

    @abstractmethod
    def step(self, states: Sequence[S], joint_actions: Sequence[Sequence[str]]) -> list[Outcome[S]]:
        """Apply one joint action (a text per agent) to each state, in input order.

        Untrusted text is executed only in the sandbox.  Failures of the infrastructure become outcomes with
        ``reward=None``; they do not raise an error.
        """

    def stub(self, state: S, agent: int) -> str:
        """Return a text that contributes nothing, to be executed in place of what agent number ``agent`` wrote."""
        return ""

    def divided(self, problem: P) -> bool:
        """Return whether the agents of a team are told different things, so that none of them is told everything."""
        return False

    def right_part(self, state: S, agent: int) -> str | None:
        """Return a text of agent number ``agent`` that is known to be right; None if none is known."""
        return None

    def exhibit(self, state: S, actions: Sequence[str]) -> Exhibit:
        """Return the joint result of a joint action for display.

        Args:
            state: the state before the joint action, or the one that `step` returned, which may contain its result.
            actions: one text per agent; empty for agents that did not act.
        """
        return Exhibit("\n\n".join(text.strip("\n") for text in actions if text.strip()))

    def close(self) -> None:
        """Free the resources of the environment (worker processes); it may be called twice."""
