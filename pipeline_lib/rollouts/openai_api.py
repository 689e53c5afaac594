"""Requests to a server with an OpenAI-compatible API, and its responses.

Three forms: ``chat`` (the observation as a user's message, for commercial servers), ``completions`` (the observation as
plain text, for base models), and ``tokens`` (completions with token ids in both directions, for vLLM's server; the only
form with exact log-probabilities).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline_lib.rollouts.actions import action_of
from pipeline_lib.rollouts.engine import Action

if TYPE_CHECKING:
    from pipeline_lib.policies.policy import Policy
    from pipeline_lib.rollouts.engine import Sampling

PATHS = {"chat": "/chat/completions", "completions": "/completions", "tokens": "/completions"}


@dataclass(frozen=True, slots=True)
class Response:
    """A server's response.

    Attributes:
        actions: from one to the requested number.
        prompt_tokens: counted by the server; 0 if it does not report it.
        completion_tokens: counted by the server; 0 if it does not report it.
    """

    actions: list[Action]
    prompt_tokens: int
    completion_tokens: int


def request_body(
    api: str, model: str, policy: Policy, prompt: tuple[int, ...], n: int, seed: int, sampling: Sampling
) -> dict[str, Any]:
    """Return the body of a request for ``n`` actions.

    Settings with their neutral value are left out, because some servers refuse unknown keys (``top_k`` is not part of
    the original API).
    """
    body: dict[str, Any] = {"model": model, "n": n, "seed": seed, "temperature": sampling.temperature}
    body["max_tokens"] = sampling.max_new_tokens
    if sampling.top_p < 1:
        body["top_p"] = sampling.top_p
    if sampling.top_k > 0:
        body["top_k"] = sampling.top_k
    if policy.stop_strings:
        body["stop"] = list(policy.stop_strings)
    if api == "tokens":
        extra = {"logprobs": 0, "return_token_ids": True, "ignore_eos": True, "add_special_tokens": False}
        return {**body, **extra, "prompt": list(prompt), "stop_token_ids": list(policy.end_ids)}
    text = policy.decode(prompt)
    if api == "chat":
        return {**body, "messages": [{"role": "user", "content": text}]}
    return {**body, "prompt": text}


def parse_response(api: str, policy: Policy, n: int, value: Any) -> Response:
    """Parse a response.

    Raises:
        AttributeError, LookupError, TypeError or ValueError: it is not a response of this API.
    """
    choices = sorted(value["choices"], key=lambda choice: int(choice.get("index", 0)))
    if not 1 <= len(choices) <= n:
        raise ValueError(f"{len(choices)} choices for {n} asked")
    actions = [_tokens_action(choice, policy) if api == "tokens" else _text_action(api, choice) for choice in choices]
    usage = value.get("usage") or {}
    return Response(actions, int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0))


def _tokens_action(choice: Mapping[str, Any], policy: Policy) -> Action:
    ids = tuple(int(i) for i in choice["token_ids"])
    logprobs = tuple(float(v) for v in choice["logprobs"]["token_logprobs"])
    if len(ids) != len(logprobs):
        raise ValueError(f"{len(ids)} ids with {len(logprobs)} log-probabilities")
    return action_of(policy, ids, logprobs)


def _text_action(api: str, choice: Mapping[str, Any]) -> Action:
    """Return an action whose ids are the bytes of its text, because these servers return no token ids."""
    content = choice["message"]["content"] if api == "chat" else choice["text"]
    if content is None:  # refusals and tool calls have no text
        content = ""
    if not isinstance(content, str):
        raise TypeError("the content is not text")
    ids = tuple(content.encode())
    return Action(ids, (float("nan"),) * len(ids), content, "length" if choice["finish_reason"] == "length" else "stop")
