"""Reads requests in the form of OpenAI's API.

What clients send by default is accepted, also where it changes nothing: ``user``, ``store``, penalties of 0, content in
parts of text, and null for any field that may be left out.  A field that asks for something else than this server
does is refused, never ignored.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from pipeline_lib.play import Player
from pipeline_lib.policies.policy import PolicyError
from pipeline_lib.rollouts.engine import Sampling
from tasks.use.local_server import RefusedError
from tasks.use.queueing import Answer, Question

TEAM_MODEL = "team"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a request."""

    max_tokens: int  #: largest number of tokens of one action
    body_kb: int = 256  #: largest body, kibibytes
    answers: int = 16  #: largest number of answers


def _encodable(text: str) -> str:
    text.encode()  # a lone surrogate, which JSON can escape, raises a ValueError
    return text


Text = Annotated[str, AfterValidator(_encodable)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, fields: Any) -> Any:
        """Leave out what is null: clients that send every field they know ask for nothing by it."""
        return (
            {name: value for name, value in fields.items() if value is not None} if isinstance(fields, dict) else fields
        )


class TextPart(_Strict):
    """A part of a message's content."""

    type: Literal["text"]
    text: Text


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Stop = Annotated[list[Annotated[Text, Field(min_length=1)]], BeforeValidator(_as_list), Field(max_length=16)]


class StreamOptions(_Strict):
    """Options of a stream."""

    include_usage: bool = False
    include_obfuscation: bool = False


def _neutral(*values: Any) -> Any:
    """Return a field that may have only values that ask for nothing."""

    def check(value: Any) -> Any:
        if value not in values:
            raise ValueError(f"this server does not do that; leave the field out, or send {values[0]!r}")
        return value

    return Annotated[Any, AfterValidator(check)]


class CompletionRequest(_Strict):
    """The common fields of both kinds of requests."""

    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    metadata: dict[str, str] | None = None
    store: _neutral(False) = None  # type: ignore[valid-type]
    service_tier: _neutral("auto", "default") = None  # type: ignore[valid-type]
    presence_penalty: _neutral(0) = None  # type: ignore[valid-type]
    frequency_penalty: _neutral(0) = None  # type: ignore[valid-type]
    logit_bias: _neutral({}) = None  # type: ignore[valid-type]
    logprobs: _neutral(False, 0) = None  # type: ignore[valid-type]
    stop: Stop | None = None

    model: str
    max_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = None
    n: int = Field(1, ge=1)
    stream: bool = False
    stream_options: StreamOptions | None = None


class Message(_Strict):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Text | list[TextPart]
    name: str | None = None
    annotations: _neutral([]) = None  # type: ignore[valid-type]
    tool_calls: _neutral([]) = None  # type: ignore[valid-type]

    @property
    def text(self) -> str:
        """The content as one text."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ChatRequest(CompletionRequest):
    """Body of ``/v1/chat/completions``."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: int | None = Field(None, ge=1)
    top_logprobs: _neutral(0) = None  # type: ignore[valid-type]
    response_format: _neutral({"type": "text"}) = None  # type: ignore[valid-type]
    modalities: _neutral(["text"]) = None  # type: ignore[valid-type]
    functions: _neutral([]) = None  # type: ignore[valid-type]
    function_call: _neutral("none", "auto") = None  # type: ignore[valid-type]
    tools: _neutral([]) = None  # type: ignore[valid-type]
    tool_choice: _neutral("none", "auto") = None  # type: ignore[valid-type]
    parallel_tool_calls: _neutral(True, False) = None  # type: ignore[valid-type]


class TextRequest(CompletionRequest):
    """Body of ``/v1/completions``."""

    prompt: Annotated[list[Text], BeforeValidator(_as_list), Field(min_length=1, max_length=1)]
    best_of: _neutral(1) = None  # type: ignore[valid-type]
    echo: _neutral(False) = None  # type: ignore[valid-type]
    suffix: _neutral("") = None  # type: ignore[valid-type]


class RequestReader:
    """Converts requests to questions.

    Args:
        player: the team, for prompts and defaults.
        agents: the names of the agents, which are the names of models.
        read_problem: makes a problem from a client's text; raises ValueError if the text is no problem.
        limits: the limits of a request.
        endings: by agent, the white space with which its observations end.  A reader of a prompt does not see it, and a
            policy without a chat template has never read a prompt without it, so it is added to a message.
    """

    def __init__(
        self,
        player: Player,
        agents: Sequence[str],
        read_problem: Callable[[str], Any],
        limits: Limits,
        endings: Mapping[str, str] | None = None,
    ) -> None:
        self._player, self._read_problem, self._limits = player, read_problem, limits
        self._endings = endings or {}
        self.models = [TEAM_MODEL, *(name for name in agents if name != TEAM_MODEL)]

    def chat(self, request: ChatRequest) -> Question:
        """Return the question of a request to ``/v1/chat/completions``.

        Raises:
            RefusedError: it cannot be answered.
        """
        if request.max_tokens is not None and request.max_completion_tokens is not None:
            raise RefusedError(400, "give max_completion_tokens or max_tokens, not both", "max_tokens")
        most = request.max_completion_tokens or request.max_tokens
        if request.model == TEAM_MODEL:
            return self._team_question(request, most)
        policy = self._policy(request.model)
        if policy.chat:
            turns = [
                ("system" if message.role == "developer" else message.role, message.text)
                for message in request.messages
            ]
            try:
                prompt = policy.in_template(turns)
            except PolicyError as error:
                reason = f"the chat template of {request.model} refuses these messages: {error.__cause__}"
                raise RefusedError(400, reason, "messages") from None
            encoded: Any = policy.tokenizer(prompt, add_special_tokens=False)
            return self._agent_question(request, tuple(int(i) for i in encoded["input_ids"]), most)
        if [message.role for message in request.messages] != ["user"]:
            raise RefusedError(400, f"{request.model} has no chat template: send one user message", "messages")
        text = request.messages[0].text
        ending = "" if text.endswith(self._endings.get(request.model, "")) or not text else self._endings[request.model]
        return self._agent_question(request, policy.encode(text + ending), most)

    def text(self, request: TextRequest) -> Question:
        """Return the question of a request to ``/v1/completions``; raises as `chat`."""
        if request.model == TEAM_MODEL:
            raise RefusedError(400, "the team answers /v1/chat/completions only", "model")
        policy = self._policy(request.model)
        ids = policy.tokenizer(request.prompt[0])["input_ids"]
        return self._agent_question(request, tuple(int(i) for i in ids), request.max_tokens)

    def check_model(self, name: str) -> None:
        """Raise RefusedError if there is no such model."""
        if name not in self.models:
            raise RefusedError(404, f"there is no model {name!r}; there are {', '.join(self.models)}", "model")

    def _policy(self, name: str) -> Any:
        self.check_model(name)
        return self._player.team.policy_of(name)

    def _team_question(self, request: ChatRequest, most: int | None) -> Question:
        if [message.role for message in request.messages] != ["user"]:
            raise RefusedError(400, "the team is sent one user message, the problem", "messages")
        if request.n != 1:
            raise RefusedError(400, "the team gives one answer a request; send several requests", "n")
        try:
            problem = self._read_problem(request.messages[0].text)
            environment, team = self._player.environment, self._player.team
            state = environment.start(problem)
            for number, agent in enumerate(environment.agents(problem)):
                if team.uses.get(agent, "team") not in team.policies:
                    raise ValueError(f"the problem has an agent {agent!r}, which the team does not have")
                policy = team.policy_of(agent)
                self._check_length(policy, len(policy.encode(environment.observe(state, number))))
        except ValueError as error:
            raise RefusedError(400, str(error), "messages") from None
        return Question(
            self._sampling(request, most),
            _seed(request),
            _nobody,
            problem=problem,
            stop=tuple(request.stop or ()),
            notices=self._notices(most),
        )

    def _agent_question(self, request: CompletionRequest, prompt: tuple[int, ...], most: int | None) -> Question:
        if request.n > self._limits.answers:
            raise RefusedError(400, f"n is {request.n}, the limit {self._limits.answers}", "n")
        self._check_length(self._policy(request.model), len(prompt))
        sampling = self._sampling(request, most)
        return Question(
            sampling,
            _seed(request),
            _nobody,
            agent=request.model,
            prompt=prompt,
            n=request.n,
            stop=tuple(request.stop or ()),
            notices=self._notices(most),
        )

    def _check_length(self, policy: Any, tokens: int) -> None:
        if not 0 < tokens < (policy.context or tokens + 1):
            raise RefusedError(
                400, f"the prompt has {tokens} tokens; {policy.context} hold prompt and answer", "messages"
            )

    def _notices(self, most: int | None) -> tuple[str, ...]:
        """Return what the client is told in the reply's field ``notices``."""
        limit = self._limits.max_tokens
        if most is None or most <= limit:
            return ()
        return (f"max_tokens was {most} and is {limit} here, the limit of an answer (symposium serve --max-tokens)",)

    def _sampling(self, request: CompletionRequest, most: int | None) -> Sampling:
        if request.stream_options is not None and not request.stream:
            raise RefusedError(400, "stream_options needs stream", "stream_options")
        default = self._player.sampling
        return replace(
            default,
            max_new_tokens=default.max_new_tokens if most is None else min(most, self._limits.max_tokens),
            temperature=default.temperature if request.temperature is None else request.temperature,
            temperatures=default.temperatures if request.temperature is None else (),
            top_p=default.top_p if request.top_p is None else request.top_p,
        )


def _seed(request: CompletionRequest) -> int:
    return secrets.randbits(62) if request.seed is None else request.seed


def _nobody(found: Answer | BaseException) -> None:
    """Do nothing; `endpoint` replaces this callback."""
