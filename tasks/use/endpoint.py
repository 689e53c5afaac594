"""A team behind an OpenAI-compatible API: one model name per agent, and ``team``, which answers with the joint result.

An agent answers the prompt of the request, in its policy's prompt format.  ``team`` receives a problem (one user
message: its JSON, or the environment's text form), plays its protocol, and answers with the joint result.  A field that
asks for something that this server does not do is refused; more tokens than the limit are cut, and the reply says so.

Starts the endpoint: the team in a thread of its own, HTTP by uvicorn on this machine only.

Replies in OpenAI's form, whole or as server-sent events.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response, StreamingResponse

from pipeline_lib.play import Player
from pipeline_lib.problems.splits import load_split
from pipeline_lib.settings import Params
from tasks.experiment.arms import PROBLEMS
from tasks.use.api_requests import TEAM_MODEL, ChatRequest, CompletionRequest, Limits, RequestReader, TextRequest
from tasks.use.choosing import Choice, untrusted_problem
from tasks.use.local_server import address, event, guard, kind_of, listen, refusal, run, status_and_message
from tasks.use.playing import opened
from tasks.use.queueing import Answer, BatchQueue, FullError, Question


class Reply:
    """The forms of replies that clients expect; see the API reference of OpenAI."""

    def __init__(self, request: CompletionRequest, notices: tuple[str, ...] = ()) -> None:
        self._request = request
        self._chat = isinstance(request, ChatRequest)
        self._head = {
            "id": f"{'chatcmpl' if self._chat else 'cmpl'}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": request.model,
            **({"notices": notices} if notices else {}),
        }

    def whole(self, answer: Answer) -> dict[str, Any]:
        """Return the whole reply."""
        choices = []
        for number, (text, finish) in enumerate(zip(answer.texts, answer.finishes, strict=True)):
            said: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
            choices.append({"index": number, **said, "logprobs": None, "finish_reason": finish})
        kind = "chat.completion" if self._chat else "text_completion"
        return {**self._head, "object": kind, "choices": choices, "usage": _usage(answer)}

    def begin(self) -> list[str]:
        """Return the events that a stream begins with."""
        if not self._chat:
            return []
        return [self._chunk(number, {"role": "assistant", "content": ""}) for number in range(self._request.n)]

    def piece(self, number: int, text: str) -> str:
        """Return the event of a further piece of an answer."""
        return self._chunk(number, {"content": text} if self._chat else text)

    def end(self, answer: Answer) -> list[str]:
        """Return the events that a stream ends with."""
        nothing: Any = {} if self._chat else ""
        chunks = [self._chunk(number, nothing, finish) for number, finish in enumerate(answer.finishes)]
        if self._request.stream_options is not None and self._request.stream_options.include_usage:
            chunks.append(event({**self._head, "object": self._object, "choices": [], "usage": _usage(answer)}))
        return chunks

    @property
    def _object(self) -> str:
        return "chat.completion.chunk" if self._chat else "text_completion"

    def _chunk(self, number: int, said: Any, finish: str | None = None) -> str:
        choice = {"index": number, ("delta" if self._chat else "text"): said, "logprobs": None, "finish_reason": finish}
        return event({**self._head, "object": self._object, "choices": [choice]})


async def stream(question: Question, events: asyncio.Queue[Any], reply: Reply) -> AsyncIterator[str]:
    """Yield a reply as server-sent events: agents token by token, the team's joint result once it is there."""
    try:
        for chunk in reply.begin():
            yield chunk
        while True:
            found = await events.get()
            if isinstance(found, Answer):
                if question.problem is not None:
                    yield reply.piece(0, found.texts[0])
                for chunk in reply.end(found):
                    yield chunk
                break
            if isinstance(found, BaseException):
                status, message = status_and_message(found)
                yield event({"error": {"message": message, "type": kind_of(status), "param": None, "code": status}})
                break
            yield reply.piece(*found)
        yield "data: [DONE]\n\n"
    finally:
        question.gone = True


def _usage(answer: Answer) -> dict[str, int]:
    read, written = answer.prompt_tokens, answer.completion_tokens
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def make_app(
    player: Player,
    agents: Sequence[str],
    batch_queue: BatchQueue,
    read_problem: Callable[[str], Any],
    limits: Limits,
    key: str = "",
    endings: Mapping[str, str] | None = None,
) -> FastAPI:
    """Return the application.

    Only ``batch_queue`` plays the player; prompts and defaults are read from it.  The names of ``agents`` are the names
    of models.  ``read_problem`` raises ValueError if a client's text is no problem.  Every request must have the bearer
    token ``key``, if it is not empty.
    """
    app = FastAPI(title="Symposium", docs_url=None, redoc_url=None, openapi_url=None)
    guard(app, limits.body_kb, key)
    reader = RequestReader(player, agents, read_problem, limits, endings)

    @app.get("/health")
    async def health() -> Response:
        return JSONResponse({"status": "ok"})

    @app.get("/v1/models")
    async def models() -> Response:
        return JSONResponse({"object": "list", "data": [_model(name) for name in reader.models]})

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        reader.check_model(name)
        return JSONResponse(_model(name))

    @app.post("/v1/chat/completions")
    async def chat(request: ChatRequest) -> Response:
        return await _answer(batch_queue, request, reader.chat(request))

    @app.post("/v1/completions")
    async def completions(request: TextRequest) -> Response:
        return await _answer(batch_queue, request, reader.text(request))

    return app


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "symposium"}


async def _answer(batch_queue: BatchQueue, request: CompletionRequest, question: Question) -> Response:
    loop = asyncio.get_running_loop()
    events: asyncio.Queue[tuple[int, str] | Answer | BaseException] = asyncio.Queue()

    def put(item: tuple[int, str] | Answer | BaseException) -> None:
        loop.call_soon_threadsafe(events.put_nowait, item)

    question.done = put
    if request.stream:
        question.wrote = lambda number, text: put((number, text))
    try:
        batch_queue.ask(question)
    except FullError as error:
        return refusal(429, str(error), None, {"Retry-After": "1"})
    reply = Reply(request, question.notices)
    if request.stream:
        return StreamingResponse(stream(question, events, reply), media_type="text/event-stream")
    try:
        found = await events.get()
    finally:
        question.gone = True
    if isinstance(found, Answer):
        return JSONResponse(reply.whole(found))
    assert isinstance(found, BaseException)
    return refusal(*status_and_message(found), None)


def serve(
    params: Params,
    choice: Choice,
    port: int,
    max_tokens: int,
    body_kb: int,
    waiting: int,
    key: str,
    ready: Callable[[str, list[str]], None],
) -> None:
    """Serve a team until the process is asked to end.

    Args:
        params: the settings.
        choice: which team.
        port: of 127.0.0.1; 0 takes a free one.
        max_tokens: largest number of tokens of an action.
        body_kb: largest body of a request, kibibytes.
        waiting: number of questions that may wait.
        key: bearer token that requests must have; empty: none.
        ready: called with the address and the names of the models as soon as requests are accepted.

    Raises:
        OSError: the port is taken.
        ChoiceError, ProblemsError, PolicyError: the team cannot be opened.
    """
    with listen(port) as listening, ExitStack() as stack:

        def make() -> Player:
            return stack.enter_context(opened(params, choice))

        batch_queue = BatchQueue(make, waiting)
        player = batch_queue.open()
        environment = player.environment
        problem = max(load_split(PROBLEMS, "train"), key=lambda problem: len(environment.agents(problem)))
        agents, state = environment.agents(problem), environment.start(problem)
        prompts = {agent: environment.observe(state, number) for number, agent in enumerate(agents)}
        endings = {agent: prompt[len(prompt.rstrip()) :] for agent, prompt in prompts.items()}
        limits = Limits(max_tokens, body_kb)
        app = make_app(player, agents, batch_queue, lambda text: untrusted_problem(params, text), limits, key, endings)
        ready(address(listening), [TEAM_MODEL, *agents])
        try:
            run(app, listening)
        finally:
            batch_queue.close()
