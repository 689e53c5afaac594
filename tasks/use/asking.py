"""Requests in the form of OpenAI's API, converted to questions; unknown fields of a request are refused."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from pipeline_lib.play import Player
from pipeline_lib.rollouts.engine import Sampling
from tasks.use.local_server import RefusedError
from tasks.use.queueing import Answer, Question

TEAM_MODEL = "team"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may ask.

    Attributes:
        max_tokens: most tokens of one action.
        body_kb: largest body of a request, kibibytes.
        answers: most answers to one request.
    """

    max_tokens: int
    body_kb: int = 256
    answers: int = 16


def _encodable(text: str) -> str:
    text.encode()  # a lone surrogate, which JSON can escape, raises a ValueError
    return text


Text = Annotated[str, AfterValidator(_encodable)]


class StreamOptions(BaseModel):
    """What a stream also holds."""

    model_config = ConfigDict(extra="forbid")
    include_usage: bool = False


class Asked(BaseModel):
    """What both kinds of requests hold."""

    model_config = ConfigDict(extra="forbid")

    model: str
    max_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = None
    n: int = Field(1, ge=1)
    stream: bool = False
    stream_options: StreamOptions | None = None


class Message(BaseModel):
    """One message of a conversation."""

    model_config = ConfigDict(extra="forbid")
    role: Literal["system", "user", "assistant"]
    content: Text


class ChatAsked(Asked):
    """Body of ``/v1/chat/completions``."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: int | None = Field(None, ge=1)


class TextAsked(Asked):
    """Body of ``/v1/completions``."""

    prompt: Text


class Asking:
    """From requests to questions.

    Args:
        player: the team, for prompts and defaults.
        agents: their names, which are names of models.
        read_problem: makes a problem of what somebody sent; raises ValueError where it is none.
        limits: what may be asked.
    """

    def __init__(
        self,
        player: Player,
        agents: Sequence[str],
        read_problem: Callable[[str], Any],
        limits: Limits,
    ) -> None:
        self._player, self._read_problem, self._limits = player, read_problem, limits
        self.models = [TEAM_MODEL, *(name for name in agents if name != TEAM_MODEL)]

    def chat(self, asked: ChatAsked) -> Question:
        """Return the question that a request to ``/v1/chat/completions`` is.

        Raises:
            RefusedError: it cannot be answered.
        """
        if asked.max_tokens is not None and asked.max_completion_tokens is not None:
            raise RefusedError(400, "give max_completion_tokens or max_tokens, not both", "max_tokens")
        most = asked.max_completion_tokens or asked.max_tokens
        if asked.model == TEAM_MODEL:
            return self._team_question(asked, most)
        policy = self._policy(asked.model)
        if policy.chat:
            turns = [message.model_dump() for message in asked.messages]
            encoded: Any = policy.tokenizer.apply_chat_template(
                turns, add_generation_prompt=True, return_dict=True, enable_thinking=False
            )
            return self._agent_question(asked, tuple(int(i) for i in encoded["input_ids"]), most)
        if [message.role for message in asked.messages] != ["user"]:
            raise RefusedError(400, f"{asked.model} has no chat template: send one user message", "messages")
        return self._agent_question(asked, policy.encode(asked.messages[0].content), most)

    def text(self, asked: TextAsked) -> Question:
        """Return the question that a request to ``/v1/completions`` is; raises as `chat`."""
        if asked.model == TEAM_MODEL:
            raise RefusedError(400, "the team answers /v1/chat/completions only", "model")
        policy = self._policy(asked.model)
        ids = policy.tokenizer(asked.prompt)["input_ids"]
        return self._agent_question(asked, tuple(int(i) for i in ids), asked.max_tokens)

    def _policy(self, name: str) -> Any:
        if name not in self.models:
            raise RefusedError(404, f"there is no model {name!r}; there are {', '.join(self.models)}", "model")
        return self._player.team.policy_of(name)

    def _team_question(self, asked: ChatAsked, most: int | None) -> Question:
        if [message.role for message in asked.messages] != ["user"]:
            raise RefusedError(400, "the team is sent one user message, the problem", "messages")
        if asked.n != 1:
            raise RefusedError(400, "the team gives one answer a request; send several requests", "n")
        try:
            problem = self._read_problem(asked.messages[0].content)
            environment, team = self._player.environment, self._player.team
            state = environment.start(problem)
            for number, agent in enumerate(environment.agents(problem)):
                if team.uses.get(agent, "team") not in team.policies:
                    raise ValueError(f"the problem has an agent {agent!r}, whom the team does not know")
                policy = team.policy_of(agent)
                self._check_room(policy, len(policy.encode(environment.observe(state, number))))
        except ValueError as error:
            raise RefusedError(400, str(error), "messages") from None
        return Question(self._sampling(asked, most), _seed(asked), _nobody, problem=problem)

    def _agent_question(self, asked: Asked, prompt: tuple[int, ...], most: int | None) -> Question:
        if asked.n > self._limits.answers:
            raise RefusedError(400, f"n is {asked.n}, the limit {self._limits.answers}", "n")
        self._check_room(self._policy(asked.model), len(prompt))
        sampling = self._sampling(asked, most)
        return Question(sampling, _seed(asked), _nobody, agent=asked.model, prompt=prompt, n=asked.n)

    def _check_room(self, policy: Any, tokens: int) -> None:
        if not 0 < tokens < (policy.context or tokens + 1):
            raise RefusedError(
                400, f"the prompt has {tokens} tokens; {policy.context} hold prompt and answer", "messages"
            )

    def _sampling(self, asked: Asked, most: int | None) -> Sampling:
        if asked.stream_options is not None and not asked.stream:
            raise RefusedError(400, "stream_options needs stream", "stream_options")
        if most is not None and most > self._limits.max_tokens:
            raise RefusedError(400, f"max_tokens is {most}, the limit {self._limits.max_tokens}", "max_tokens")
        own = self._player.sampling
        return replace(
            own,
            max_new_tokens=own.max_new_tokens if most is None else most,
            temperature=own.temperature if asked.temperature is None else asked.temperature,
            temperatures=own.temperatures if asked.temperature is None else (),
            top_p=own.top_p if asked.top_p is None else asked.top_p,
        )


def _seed(asked: Asked) -> int:
    return secrets.randbits(62) if asked.seed is None else asked.seed


def _nobody(found: Answer | BaseException) -> None:
    """Be told nothing: whoever answers puts somebody else here."""
