"""The interface between sampling and all code that needs samples.

An engine does not depend on problems, rewards or teams: it holds rollout copies of named policies, samples
continuations of token ids, and returns the log-probability of each token *under the sampling distribution* (including
temperature, top-p and top-k), so that training can use the same numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline_lib.policies.policy import Policy


@dataclass(frozen=True, slots=True)
class Sampling:
    """The distribution that actions are sampled from."""

    #: > 0 divides the logits; 0 means greedy, with the model's own log-probabilities (temperature 1).
    temperature: float = 1.0
    top_p: float = 1.0  #: nucleus mass in (0, 1]; 1 keeps the full support
    top_k: int = 0  #: number of most likely tokens kept; 0 keeps all
    max_new_tokens: int = 64  #: maximum number of tokens per action, including the end token
    temperatures: tuple[tuple[str, float], ...] = ()  #: pairs of a policy's name and its own temperature

    def of(self, policy: str) -> Sampling:
        """Return the distribution of one policy, with an empty ``temperatures``."""
        if not self.temperatures:
            return self
        return replace(self, temperature=dict(self.temperatures).get(policy, self.temperature), temperatures=())


@dataclass(frozen=True, slots=True)
class Request:
    """Sample ``n`` actions for one prompt."""

    policy: str  #: name of the policy (a key of the team's policies)
    prompt: tuple[int, ...]  #: token ids of the prompt, never empty
    n: int  #: number of actions to draw (the group size in training)
    seed: int  #: determines the draws of this request, independent of the batch; action j uses (seed, j)


@dataclass(frozen=True, slots=True)
class Action:
    """One agent's completion."""

    #: Sampled token ids, ending with the end token if (and only if) the policy chose it; never padded.
    ids: tuple[int, ...]
    #: Natural-log probability of each id under the sampling distribution; same length as ``ids``.
    logprobs: tuple[float, ...]
    text: str  #: ``ids`` decoded without special tokens, cut before a stop string
    finish: str  #: ``stop`` (end token or stop string) or ``length``


@dataclass(slots=True)
class Counters:
    """Totals since an engine was created or last reset.

    ``generated_tokens`` counts the tokens of all actions, ``computed_tokens`` those that went through the model one by
    one (work that actions share counts once), ``prompt_tokens`` those prefilled; ``seconds`` is wall time inside
    `generate`.
    """

    requests: int = 0
    actions: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    computed_tokens: int = 0
    seconds: float = 0.0
    extra: dict[str, float] = field(default_factory=dict)


class EngineError(RuntimeError):
    """The engine cannot serve a request (prompt too long, server down, weights of another shape)."""


#: Called with each token when it is drawn: index of the request in the call, index of the action, id of the token.
Listener = Callable[[int, int, int], None]


class Engine(ABC):
    """Samples actions from named policies."""

    counters: Counters  #: see `Counters`
    #: Called with each token by engines that sample in this process; other engines never call it.
    listener: Listener | None = None

    @abstractmethod
    def load(self, policies: Mapping[str, Policy]) -> None:
        """Take rollout copies of all policies (adapters merged out of place)."""

    @abstractmethod
    def update(self, policy: Policy) -> None:
        """Refresh the rollout copy of one policy after an optimiser step; later samples come from the new weights."""

    @abstractmethod
    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[list[Action]]:
        """Return ``n`` actions per request, in input order.

        Raises:
            EngineError: a prompt does not fit the context, a policy is unknown, or its rollout copy is older than
                the policy's version.
        """

    def close(self) -> None:
        """Free memory, processes and connections; it may be called twice."""


def unknown_policy(name: str, loaded: Iterable[str]) -> EngineError:
    """Return the error for a policy that was never loaded."""
    return EngineError(f"policy {name!r} is not loaded (loaded: {sorted(loaded)}); call load first")


def require_current(policy: Policy, version: int) -> None:
    """Check that a rollout copy has the policy's present version.

    Raises:
        EngineError: it has another one; sampling from stale weights would not be on-policy.
    """
    if version != policy.version:
        raise EngineError(
            f"the rollout copy of policy {policy.name!r} has version {version}, the policy {policy.version}: "
            f"call update after every optimiser step"
        )


def check_prompt(name: str, prompt_tokens: int, n: int, context: int) -> None:
    """Check that a request can be served.

    Args:
        name: the policy.
        prompt_tokens: length of the prompt.
        n: number of requested actions.
        context: maximum number of tokens of prompt and action together.

    Raises:
        EngineError: the prompt is empty or leaves no room for an action, or ``n`` is below 1.
    """
    if prompt_tokens == 0:
        raise EngineError(f"a prompt for policy {name!r} has no tokens; an observation must not be empty")
    if prompt_tokens >= context:
        raise EngineError(
            f"a prompt for policy {name!r} has {prompt_tokens} tokens, and its context is {context}, which must hold "
            f"prompt and action: shorten the observation, or use a model with a longer context"
        )
    if n < 1:
        raise EngineError(f"a request for policy {name!r} asks for {n} actions; ask for 1 or more")
