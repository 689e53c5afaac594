"""An environment in which some actions are fixed: what would a team do without an agent, or with another action?

Some agents are *absent*: in every turn their action is the environment's stub (`Environment.stub`).  Others do what is
known to be *right* (`Environment.right_part`).  Some first actions are *given*.  Nothing is sampled for these agents.
The others act as always, also in reaction to them, until the episode ends.  Everything that plays a team can play this
environment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pipeline_lib.environment_api.environment import Environment, Exhibit, Outcome, Part, ToolCall, ToolResult
from pipeline_lib.rollouts.engine import Action, Engine, Request, Sampling


@dataclass(frozen=True, slots=True)
class Fixed:
    """A problem with fixed actions."""

    problem: Any  #: the problem
    absent: frozenset[int] = frozenset()  #: numbers of the agents that are absent
    #: Numbers of the agents that do what is right; the environment must know it for this problem.
    right: frozenset[int] = frozenset()
    given: Mapping[int, str] = field(default_factory=dict)  #: by number of the agent, its action in the first turn

    @property
    def id(self) -> str:
        """Return the id of the problem, so that draws are paired with those of the whole team."""
        return str(self.problem.id)


@dataclass(frozen=True, slots=True)
class _State:
    inner: Any
    agents: int
    absent: frozenset[int]
    right: frozenset[int]
    given: Mapping[int, str]


class FixedActions(Environment[Fixed, Any]):
    """The environment ``inner``, which stays the caller's to close, with actions fixed by its problems."""

    def __init__(self, inner: Environment[Any, Any]) -> None:
        self.inner = inner
        self.turns = inner.turns
        self.reward_bounds = inner.reward_bounds
        self.retries = inner.retries
        self.has_critic = inner.has_critic
        self.tool_calls, self.tool_tokens = inner.tool_calls, inner.tool_tokens

    def agents(self, problem: Fixed) -> tuple[str, ...]:
        return self.inner.agents(problem.problem)

    def start(self, problem: Fixed, seed: int = 0) -> _State:
        state = self.inner.start(problem.problem, seed)
        return _State(state, len(self.agents(problem)), problem.absent, problem.right, problem.given)

    def observe(self, state: _State, agent: int) -> str:
        return self.inner.observe(state.inner, agent)

    def shortened(self, state: _State, agent: int, cut: int) -> str | None:
        return self.inner.shortened(state.inner, agent, cut)

    def criticised(self, state: _State, texts: Mapping[int, str]) -> _State:
        """Return the state with what the critic wrote, for agents whose action is not fixed."""
        return replace(state, inner=self.inner.criticised(state.inner, texts))

    def use_tools(self, calls: Sequence[ToolCall[_State]]) -> list[ToolResult]:
        """Run the tools of the inner environment; where an action is fixed, that is what the agent wrote."""
        return self.inner.use_tools(
            [ToolCall(call.state.inner, call.agent, tuple(self._complete(call.state, call.texts))) for call in calls]
        )

    def parts(self, state: _State, agent: int) -> Sequence[Part]:
        return self.inner.parts(state.inner, agent)

    def acting(self, state: _State) -> Sequence[int]:
        """Return the agents whose action is not fixed."""
        fixed = {*state.absent, *state.right, *state.given}
        return [agent for agent in self._acting(state) if agent not in fixed]

    def _acting(self, state: _State) -> Sequence[int]:
        acting = self.inner.acting(state.inner)
        return range(state.agents) if acting is None else acting

    def ending(self, state: _State) -> _State:
        return replace(state, inner=self.inner.ending(state.inner))

    def step(self, states: Sequence[_State], joint_actions: Sequence[Sequence[str]]) -> list[Outcome[Any]]:
        outcomes = self.inner.step(
            [state.inner for state in states],
            [self._complete(state, texts) for state, texts in zip(states, joint_actions, strict=True)],
        )
        return [
            replace(outcome, state=replace(state, inner=outcome.state, given={}))
            for state, outcome in zip(states, outcomes, strict=True)
        ]

    def _complete(self, state: _State, texts: Sequence[str]) -> list[str]:
        found = list(texts)
        for agent in self._acting(state):
            if agent in state.given:
                found[agent] = state.given[agent]
            elif agent in state.absent:
                found[agent] = self.inner.stub(state.inner, agent)
            elif agent in state.right:
                found[agent] = _known(self.inner.right_part(state.inner, agent), agent)
        return found

    def stub(self, state: _State, agent: int) -> str:
        return self.inner.stub(state.inner, agent)

    def exhibit(self, state: _State, actions: Sequence[str]) -> Exhibit:
        return self.inner.exhibit(state.inner, actions)


class SampledOnce(Engine):
    """An engine that answers equal requests of one call with the same actions, and samples them once.

    Subteams of one team ask their members the same questions with the same seeds as long as nothing differs that they
    can see.
    """

    def __init__(self, inner: Engine) -> None:
        self.inner = inner
        self.counters = inner.counters

    def load(self, policies: Mapping[str, Any]) -> None:
        self.inner.load(policies)

    def update(self, policy: Any) -> None:
        self.inner.update(policy)

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[list[Action]]:
        """Sample each different request once."""
        different = list(dict.fromkeys(requests))
        found = dict(zip(different, self.inner.generate(different, sampling), strict=True))
        return [found[request] for request in requests]


def _known(part: str | None, agent: int) -> str:
    if part is None:
        raise ValueError(f"the environment knows no right part of agent {agent} for this problem")
    return part
