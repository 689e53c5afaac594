"""From observations to prompts: token ids, and the cut of a history that leaves too little room for an action."""

from __future__ import annotations

from typing import Any, NamedTuple

from pipeline_lib.environment_api.environment import Environment
from pipeline_lib.policies.policy import Policy

#: Number of prompts whose token ids are cached.
ENCODED = 2**14


class Prompts:
    """A cache of token ids of prompts, by policy and text; groups and later steps use the same prompts."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, str], tuple[int, ...]] = {}

    def ids(self, policy: Policy, text: str) -> tuple[int, ...]:
        """Return the token ids of a prompt."""
        key = policy.name, text
        if key not in self._ids:
            if len(self._ids) >= ENCODED:
                self._ids.clear()
            self._ids[key] = policy.encode(text)
        return self._ids[key]


class Observation(NamedTuple):
    """An observation, and what was cut from it: turns, and tokens."""

    text: str
    cut_turns: int = 0
    cut_tokens: int = 0


def fit(
    environment: Environment[Any, Any], state: Any, agent: int, policy: Policy, max_new_tokens: int, prompts: Prompts
) -> Observation:
    """Return an observation that leaves room for an action of full length, cut from the oldest turn on if need be.

    If not even the shortest one does, it is returned all the same: the action is then shorter.
    """
    text = environment.observe(state, agent)
    if policy.context is None or environment.shortened(state, agent, 1) is None:
        return Observation(text)
    room = policy.context - max_new_tokens
    whole = size = len(prompts.ids(policy, text))
    cut = 0
    while size > room and (shorter := environment.shortened(state, agent, cut + 1)) is not None:
        cut, text = cut + 1, shorter
        size = len(prompts.ids(policy, text))
    return Observation(text, cut, whole - size)
