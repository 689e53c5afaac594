"""A team behind an OpenAI-compatible API: one model name per agent, and ``team``, which answers with the joint result.

Asked as a model, an agent answers what it is sent, as its policy is prompted in training.  ``team`` is sent a problem
(one user message: its JSON, or what people type in this environment), plays its protocol, and answers with what the
agents' texts amount to.  What a request says and this API does not know is refused, never ignored.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from pipeline_lib.play import Player
from pipeline_lib.rollouts.engine import Sampling
from tasks.use.queueing import Answer, Desk, FullError, Question

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


class StreamOptions(BaseModel):
    """What a stream also holds."""

    model_config = ConfigDict(extra="forbid")
    include_usage: bool = False


class _Asked(BaseModel):
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
    content: str


class ChatAsked(_Asked):
    """Body of ``/v1/chat/completions``."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: int | None = Field(None, ge=1)


class TextAsked(_Asked):
    """Body of ``/v1/completions``."""

    prompt: str


class RefusedError(Exception):
    """The request cannot be answered: HTTP status, message, and the parameter that is at fault."""

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.param = status, param


def make_app(
    player: Player,
    agents: Sequence[str],
    desk: Desk,
    read_problem: Callable[[str], Any],
    limits: Limits,
    key: str = "",
) -> FastAPI:
    """Return the application.

    Args:
        player: the team, for prompts and defaults; it is played by ``desk`` alone.
        agents: their names, which are names of models.
        desk: answers.
        read_problem: makes a problem of what somebody sent; raises ValueError where it is none.
        limits: what may be asked.
        key: every request must bring it as bearer; empty: none is asked for.
    """
    app = FastAPI(title="Symposium", docs_url=None, redoc_url=None, openapi_url=None)
    # A page in a browser may send requests to this machine; it cannot send them under this name, nor JSON unasked.
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])
    office = _Office(player, agents, desk, read_problem, limits)

    @app.middleware("http")
    async def guarded(request: Request, call_next: Any) -> Response:
        if key and not hmac.compare_digest(request.headers.get("authorization", "").encode(), f"Bearer {key}".encode()):
            return _error(401, "the key is missing or wrong; send it as `Authorization: Bearer ...`", None)
        if request.method == "POST":
            if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
                return _error(415, "the body must be application/json", None)
            length = request.headers.get("content-length", "")
            if not length.isdigit():
                return _error(411, "the length of the body must be said", None)
            if int(length) > 1024 * limits.body_kb:
                return _error(413, f"the body is longer than {limits.body_kb} KiB", None)
        answer: Response = await call_next(request)
        return answer

    @app.exception_handler(RefusedError)
    async def refused(request: Request, error: RefusedError) -> Response:
        return _error(error.status, str(error), error.param)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:])
        what = "this API does not know it" if first["type"] == "extra_forbidden" else first["msg"]
        return _error(400, f"{place}: {what}" if place else what, place or None)

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        return _error(error.status_code, str(error.detail), None)

    @app.get("/health")
    async def health() -> Response:
        return JSONResponse({"status": "ok"})

    @app.get("/v1/models")
    async def models() -> Response:
        held = [{"id": name, "object": "model", "created": 0, "owned_by": "symposium"} for name in office.models]
        return JSONResponse({"object": "list", "data": held})

    @app.post("/v1/chat/completions")
    async def chat(asked: ChatAsked) -> Response:
        return await office.answer(asked, office.chat_question(asked))

    @app.post("/v1/completions")
    async def completions(asked: TextAsked) -> Response:
        return await office.answer(asked, office.text_question(asked))

    return app


class _Office:
    """From requests to questions, and from answers to replies."""

    def __init__(
        self,
        player: Player,
        agents: Sequence[str],
        desk: Desk,
        read_problem: Callable[[str], Any],
        limits: Limits,
    ) -> None:
        self._player, self._desk, self._read_problem, self._limits = player, desk, read_problem, limits
        self.models = [TEAM_MODEL, *(name for name in agents if name != TEAM_MODEL)]

    def chat_question(self, asked: ChatAsked) -> Question:
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

    def text_question(self, asked: TextAsked) -> Question:
        if asked.model == TEAM_MODEL:
            raise RefusedError(400, "the team answers /v1/chat/completions only", "model")
        policy = self._policy(asked.model)
        ids = policy.tokenizer(asked.prompt)["input_ids"]
        return self._agent_question(asked, tuple(int(i) for i in ids), asked.max_tokens)

    async def answer(self, asked: _Asked, question: Question) -> Response:
        loop = asyncio.get_running_loop()
        heard: asyncio.Queue[tuple[int, str] | Answer | BaseException] = asyncio.Queue()

        def put(item: tuple[int, str] | Answer | BaseException) -> None:
            loop.call_soon_threadsafe(heard.put_nowait, item)

        question.done = put
        if asked.stream:
            question.wrote = lambda number, text: put((number, text))
        try:
            self._desk.ask(question)
        except FullError as error:
            return _error(429, str(error), None, {"Retry-After": "1"})
        reply = _Reply(asked)
        if asked.stream:
            return StreamingResponse(_events(question, heard, reply), media_type="text/event-stream")
        try:
            found = await heard.get()
        finally:
            question.gone = True
        if isinstance(found, Answer):
            return JSONResponse(reply.whole(found))
        assert isinstance(found, BaseException)
        return _error(*_told(found), None)

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

    def _agent_question(self, asked: _Asked, prompt: tuple[int, ...], most: int | None) -> Question:
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

    def _sampling(self, asked: _Asked, most: int | None) -> Sampling:
        if asked.stream_options is not None and not asked.stream:
            raise RefusedError(400, "stream_options needs stream", "stream_options")
        if most is not None and most > self._limits.max_tokens:
            raise RefusedError(400, f"max_tokens is {most}, the limit {self._limits.max_tokens}", "max_tokens")
        own = self._player.sampling
        return replace(
            own,
            max_new_tokens=own.max_new_tokens if most is None else most,
            temperature=own.temperature if asked.temperature is None else asked.temperature,
            top_p=own.top_p if asked.top_p is None else asked.top_p,
        )


class _Reply:
    """The shapes that clients know; see the API reference of OpenAI."""

    def __init__(self, asked: _Asked) -> None:
        self._asked = asked
        self._chat = isinstance(asked, ChatAsked)
        self._head = {
            "id": f"{'chatcmpl' if self._chat else 'cmpl'}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": asked.model,
        }

    def whole(self, answer: Answer) -> dict[str, Any]:
        choices = []
        for number, (text, finish) in enumerate(zip(answer.texts, answer.finishes, strict=True)):
            said: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
            choices.append({"index": number, **said, "logprobs": None, "finish_reason": finish})
        kind = "chat.completion" if self._chat else "text_completion"
        return {**self._head, "object": kind, "choices": choices, "usage": _usage(answer)}

    def begin(self) -> list[str]:
        if not self._chat:
            return []
        return [self._chunk(number, {"role": "assistant", "content": ""}) for number in range(self._asked.n)]

    def piece(self, number: int, text: str) -> str:
        return self._chunk(number, {"content": text} if self._chat else text)

    def end(self, answer: Answer) -> list[str]:
        nothing: Any = {} if self._chat else ""
        chunks = [self._chunk(number, nothing, finish) for number, finish in enumerate(answer.finishes)]
        if self._asked.stream_options is not None and self._asked.stream_options.include_usage:
            chunks.append(_event({**self._head, "object": self._object, "choices": [], "usage": _usage(answer)}))
        return chunks

    @property
    def _object(self) -> str:
        return "chat.completion.chunk" if self._chat else "text_completion"

    def _chunk(self, number: int, said: Any, finish: str | None = None) -> str:
        choice = {"index": number, ("delta" if self._chat else "text"): said, "logprobs": None, "finish_reason": finish}
        return _event({**self._head, "object": self._object, "choices": [choice]})


async def _events(question: Question, heard: asyncio.Queue[Any], reply: _Reply) -> AsyncIterator[str]:
    """Yield a reply as server-sent events: agents token by token, the team's joint result once it is there."""
    try:
        for chunk in reply.begin():
            yield chunk
        while True:
            found = await heard.get()
            if isinstance(found, Answer):
                if question.problem is not None:
                    yield reply.piece(0, found.texts[0])
                for chunk in reply.end(found):
                    yield chunk
                break
            if isinstance(found, BaseException):
                status, message = _told(found)
                yield _event({"error": {"message": message, "type": _kind(status), "param": None, "code": status}})
                break
            yield reply.piece(*found)
        yield "data: [DONE]\n\n"
    finally:
        question.gone = True


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"


def _usage(answer: Answer) -> dict[str, int]:
    read, written = answer.prompt_tokens, answer.completion_tokens
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _seed(asked: _Asked) -> int:
    return secrets.randbits(62) if asked.seed is None else asked.seed


def _nobody(found: Answer | BaseException) -> None:
    """Be told nothing: whoever answers puts somebody else here."""


def _told(error: BaseException) -> tuple[int, str]:
    """Return status and message of an error: those of this project explain themselves, others stay in the log."""
    if type(error).__module__.partition(".")[0] in {"pipeline_lib", "tasks"}:
        return 400, str(error)
    return 500, f"{type(error).__name__}, see the server's log"


def _kind(status: int) -> str:
    return "invalid_request_error" if status < 500 else "server_error"


def _error(status: int, message: str, param: str | None, headers: dict[str, str] | None = None) -> JSONResponse:
    content = {"error": {"message": message, "type": _kind(status), "param": param, "code": None}}
    return JSONResponse(content, status, headers)
