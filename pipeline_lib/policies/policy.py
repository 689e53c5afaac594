"""A policy is one trainable language model with its tokenizer; a team says which agent uses which policy.

Also the ``policy`` settings of a single agent: the team's, with the changes of ``policy.agents``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from pipeline_lib.settings.policy import AgentPolicy, Server
    from pipeline_lib.settings.policy import Policy as PolicySettings


#: Stands for the model's own message in a chat template; templates change no such text.
_ANSWER = "ANSWER"
#: Stands for another content of a chat template.
_CONTENT = "CONTENT"
#: What chat templates are told when they ask for the day, so that a prompt is the same on every day; it is the one that
#: Llama 3's write by themselves.
_TODAY = datetime(2024, 7, 26)
#: Characters of a text that are encoded at least to cut it; half of them are more than any token has.
_BEGINNING = 1024


class PolicyError(ValueError):
    """A policy cannot be built, loaded, saved or restored; the message gives reason and remedy."""


@dataclass(slots=True)
class Policy:
    """One language model that is prompted, sampled and trained."""

    name: str  #: key of the policy in its team (an agent's name, or ``team`` when all agents share it)
    model: PreTrainedModel  #: the causal language model that is trained; a ``PeftModel`` when it carries a LoRA adapter
    tokenizer: PreTrainedTokenizerBase  #: its tokenizer; observations are encoded with `encode` and nowhere else
    chat: bool = False  #: wrap observations in the tokenizer's chat template
    stop_strings: tuple[str, ...] = ()  #: texts that end an action, for base models that do not emit an end token
    version: int = 0  #: number of optimiser steps applied; engines compare it with the version of their rollout copy
    learning_rate: float | None = None  #: peak learning rate of this policy; None means that of the ``train`` section
    #: The frozen model whose weights this one shares; it lives as long as a policy on it does.
    below: PreTrainedModel | None = None

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Return the token ids that end an action."""
        configured: Any = getattr(self.model.generation_config, "eos_token_id", None)
        ids = configured if isinstance(configured, (list, tuple)) else [configured]
        found = {int(i) for i in [*ids, self.tokenizer.eos_token_id] if i is not None}
        return tuple(sorted(found))

    @property
    def context(self) -> int | None:
        """Return the maximum number of tokens of prompt and action together, or None if the model has no limit."""
        config: Any = getattr(self.model, "config", None)
        config = config.get_text_config() if hasattr(config, "get_text_config") else config
        most = getattr(config, "max_position_embeddings", None)
        return int(most) if most else None

    def encode(self, observation: str) -> tuple[int, ...]:
        """Return the token ids of a prompt, in the chat template if there is one.

        What spells a special token in it is text: other agents and data sets cannot end a message or begin one.
        """
        if not self.chat:
            encoded: Any = self._encoder(observation)(observation)
            return tuple(encoded["input_ids"])
        return self._encode(lambda content: self.in_template([("user", content)]), observation)

    def encode_result(self, action: Sequence[int], result: str, most: int | None = None) -> tuple[int, ...]:
        """Return the token ids that follow an action which called a tool: the result, which the policy then continues.

        In the chat template the result is a user's message after the model's own.

        Args:
            action: the sampled ids.
            result: the text of the result.
            most: number of tokens that are kept of it, > 0, without those of the chat template; None keeps all.
        """
        if most is not None:
            result = self._shortened(result, most)
        return self._encode(lambda content: self._after(action, content), result)

    def _after(self, action: Sequence[int], result: str) -> str:
        """Return the text that follows an action which called a tool, with the chat template's marks."""
        if not self.chat:
            return result
        whole = self.in_template([("user", "x"), ("assistant", _ANSWER), ("user", result)])
        added = whole[whole.index(_ANSWER) + len(_ANSWER) :]
        if action and action[-1] in self.end_ids:  # the template ends the model's message in the same way
            end, rest = str(self.tokenizer.decode([action[-1]])), added.lstrip()
            added = rest.removeprefix(end) if rest.startswith(end) else added
        return added

    def in_template(self, turns: Sequence[tuple[str, str]]) -> str:
        """Return messages (role and content) in the chat template, up to where the model speaks.

        Raises:
            PolicyError: the template is no template, or refuses the messages.
        """
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    [{"role": role, "content": content} for role, content in turns],
                    add_generation_prompt=True,
                    tokenize=False,
                    enable_thinking=False,  # else Qwen3's template allows a chain of thought, longer than an action
                    strftime_now=_TODAY.strftime,
                )
            )
        except Exception as error:  # whatever happens in a template that nobody has checked
            raise PolicyError(
                f"policy.chat: the chat template of {self.tokenizer.name_or_path or self.name} cannot be applied "
                f"({type(error).__name__}: {error}); set policy.chat=never, for plain text (accepted: auto, never), "
                "or correct the template in the model's folder"
            ) from error

    def _encode(self, fill: Callable[[str], str], text: str) -> tuple[int, ...]:
        """Return the token ids of ``fill(text)``; special tokens are what ``fill`` adds, and never within ``text``."""
        encode = self._encoder("", add_special_tokens=False)
        if self._spells(text):
            head, _, tail = fill(_CONTENT).rpartition(_CONTENT)
            parts = [encode(head), self._encoder(text, add_special_tokens=False)(text), encode(tail)]
        else:
            parts = [encode(fill(text))]
        return tuple(int(i) for part in parts for i in part["input_ids"])

    def _encoder(self, text: str, **more: bool) -> Callable[[str], Any]:
        """Return the tokenizer, or, if ``text`` spells a special token, one for which there are none."""
        if self._spells(text):
            more["split_special_tokens"] = True
        return partial(cast(Any, self.tokenizer), **more)

    def _spells(self, text: str) -> bool:
        """Return whether a text spells a special token."""
        known = getattr(self.tokenizer, "added_tokens_decoder", {})  # a server's agents have no tokenizer here
        return any(token.special and token.content in text for token in known.values())

    def _shortened(self, text: str, most: int) -> str:
        """Return the beginning of a text that has at most so many tokens.

        Of a long text only a beginning is encoded.  Its end, within a word, may be encoded in another way than in the
        whole text, so what is kept must lie in its first half: no token is as long as the second.
        """
        encode = self._encoder(text, add_special_tokens=False)
        size = max(_BEGINNING, 8 * most)
        while True:
            ids = encode(text[:size])["input_ids"]
            kept = self.decode(ids[:most])
            if size >= len(text) or (len(ids) > most and 2 * len(kept) <= size):
                break
            size *= 2
        if len(ids) <= most:
            return text
        while len(encode(kept)["input_ids"]) > most:  # it may be encoded in another way than within the text
            kept = kept[:-1]
        return kept

    def decode(self, ids: tuple[int, ...] | list[int]) -> str:
        """Return the text of sampled ids without special tokens and without cleaning up spaces."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def trainable(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Yield the names and parameters that training updates: all, the adapter's, or none of a frozen policy."""
        return ((name, p) for name, p in self.model.named_parameters() if p.requires_grad)


@dataclass(slots=True)
class Team:
    """The policies of a team, and which agent uses which."""

    #: Policies by name.  One entry named ``team`` when parameters are shared by all agents.
    policies: dict[str, Policy]
    uses: Mapping[str, str]  #: policy name by agent name; agents not named use ``team``
    #: By name of the policy, the untrained policy that it began as, for environments with a critic; policies with the
    #: same base have the same one here.  Nothing trains or saves them.
    bases: Mapping[str, Policy] = field(default_factory=dict)

    def policy_of(self, agent: str) -> Policy:
        """Return the policy that plays ``agent``.

        Raises:
            KeyError: neither the agent nor a shared policy ``team`` is known.
        """
        return self.policies[self.uses.get(agent, "team")]

    def base_of(self, agent: str) -> Policy:
        """Return the untrained policy that plays the critic of ``agent``.

        Raises:
            PolicyError: the team was loaded without it, or the agent's weights are on a server.
        """
        name = self.uses.get(agent, "team")
        if name not in self.bases:
            raise PolicyError(f"agent {agent!r} has no base here that could be its critic")
        return self.bases[name]

    def sampled(self) -> dict[str, Policy]:
        """Return everything that an engine samples from, by name: the policies, and the bases if there are any."""
        return self.policies | {base.name: base for base in self.bases.values()}


def section_of(settings: PolicySettings, agent: str) -> PolicySettings:
    """Return the section for one agent, with its own values and without those of others."""
    shared = settings.model_dump(exclude={"agents"})
    own = settings.agents[agent].model_dump(exclude_none=True, include=set(shared)) if agent in settings.agents else {}
    return type(settings).model_validate(shared | own)


def is_frozen(agent: AgentPolicy) -> bool:
    """Return whether an agent is not trained."""
    return not agent.trained or agent.server is not None


def check_agents(settings: PolicySettings, agents: Sequence[str]) -> None:
    """Check that the team has all agents in ``policy.agents``; a team of one agent ignores them.

    Raises:
        PolicyError: an agent is unknown.
    """
    if len(agents) > 1 and (unknown := [name for name in settings.agents if name not in agents]):
        raise PolicyError(f"policy.agents.{unknown[0]}: the team has no such agent; it has {', '.join(agents)}")


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
