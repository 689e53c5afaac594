"""Policies whose weights are on another server: they can be prompted but not trained.

Such a policy has no tokenizer of its own, so its ids are the bytes of UTF-8 text: nothing is lost between an
observation and the server, and actions of all models can be compared, stored and counted in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pipeline_lib.policies.policy import Policy

if TYPE_CHECKING:
    from pipeline_lib.settings.policy import Server


class ByteTokenizer:
    """Text to UTF-8 bytes and back; the part of a tokenizer's interface that `Policy` uses."""

    eos_token_id = None
    chat_template = None

    def __call__(self, text: str) -> dict[str, list[int]]:
        """Return the bytes of ``text`` as ``input_ids``."""
        return {"input_ids": list(text.encode())}

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        """Decode bytes; invalid UTF-8 becomes the replacement character."""
        return bytes(ids).decode(errors="replace")


class RemoteModel:
    """The model of a policy on a server.

    Attributes:
        name: the model's name on the server.
        server: the server, if the settings name one for this agent.
    """

    def __init__(self, name: str, server: Server | None = None) -> None:
        self.name, self.server = name, server
        self.generation_config = SimpleNamespace(eos_token_id=None)

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        """Return no parameters, because none can be trained."""
        return iter(())


def remote_policy(agent: str, name: str, server: Server | None = None) -> Policy:
    """Return a policy on a server; for the arguments see `RemoteModel`."""
    model: Any = RemoteModel(name, server)
    tokenizer: Any = ByteTokenizer()
    return Policy(agent, model, tokenizer)


def is_remote(policy: Policy) -> bool:
    """Return whether the policy's weights are on a server."""
    return isinstance(policy.model, RemoteModel)
