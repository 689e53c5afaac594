"""Policies whose weights live on somebody else's server: they can be prompted, never trained.

Such a policy has no tokenizer of its own, so ids are the bytes of UTF-8 text: nothing is lost on the way from an
observation to the server and back, and actions of any model can be compared, stored and counted alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from pipeline_lib.policies.policy import Policy, PolicyError, Team


class ByteTokenizer:
    """Text to UTF-8 bytes and back; the part of a tokenizer's interface that `Policy` uses."""

    eos_token_id = None
    chat_template = None

    def __call__(self, text: str) -> dict[str, list[int]]:
        """Return the bytes of ``text`` as ``input_ids``."""
        return {"input_ids": list(text.encode())}

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        """Return the text of bytes; what is not UTF-8 becomes the replacement character."""
        return bytes(ids).decode(errors="replace")


class RemoteModel:
    """Stands where a policy has its model; ``name`` is the model's name on the server."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.generation_config = SimpleNamespace(eos_token_id=None)

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        """Return nothing: there is nothing to train here."""
        return iter(())


def remote_team(models: Sequence[str], agents: Sequence[str], stop_strings: Sequence[str] = ()) -> Team:
    """Return a team of models on a server, for evaluation.

    Args:
        models: names on the server; one for all agents, or one per agent.
        agents: the agents' names.
        stop_strings: texts that end an action.

    Raises:
        PolicyError: the numbers do not fit.
    """
    if len(models) not in (1, len(agents)):
        raise PolicyError(
            f"{len(models)} models for {len(agents)} agents ({', '.join(agents)}); "
            "give one model, or one per agent in this order"
        )
    names = list(models) * len(agents) if len(models) == 1 else list(models)
    policies: dict[str, Policy] = {}
    for agent, name in zip(agents, names, strict=True):
        model: Any = RemoteModel(name)
        tokenizer: Any = ByteTokenizer()
        policies[agent] = Policy(agent, model, tokenizer, stop_strings=tuple(stop_strings))
    return Team(policies, {agent: agent for agent in agents})
