"""A team behind an OpenAI-compatible API: one model name per agent, and ``team``, which answers with the joint result.

An agent answers the prompt of the request, in its policy's prompt format.  ``team`` receives a problem (one user
message: its JSON, or the environment's text form), plays its protocol, and answers with the joint result.  A field that
asks for something that this server does not do is refused; more tokens than the limit are cut, and the reply says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response, StreamingResponse

from pipeline_lib.play import Player
from tasks.use.api_requests import ChatRequest, CompletionRequest, Limits, RequestReader, TextRequest
from tasks.use.local_server import guard, refusal, status_and_message
from tasks.use.queueing import Answer, BatchQueue, FullError, Question
from tasks.use.replying import Reply, stream


def make_app(
    player: Player,
    agents: Sequence[str],
    batch_queue: BatchQueue,
    read_problem: Callable[[str], Any],
    limits: Limits,
    key: str = "",
) -> FastAPI:
    """Return the application.

    Args:
        player: the team, for prompts and defaults; it is played by ``batch_queue`` alone.
        agents: names of the agents, which are the names of models.
        batch_queue: answers the questions.
        read_problem: makes a problem from a client's text; raises ValueError if the text is no problem.
        limits: the limits of a request.
        key: bearer token that every request must have; empty: none is required.
    """
    app = FastAPI(title="Symposium", docs_url=None, redoc_url=None, openapi_url=None)
    guard(app, limits.body_kb, key)
    reader = RequestReader(player, agents, read_problem, limits)

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
