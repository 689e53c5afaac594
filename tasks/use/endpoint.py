"""A team behind an OpenAI-compatible API: one model name per agent, and ``team``, which answers with the joint result.

Asked as a model, an agent answers what it is sent, as its policy is prompted in training.  ``team`` is sent a problem
(one user message: its JSON, or what people type in this environment), plays its protocol, and answers with what the
agents' texts amount to.  What a request says and this API does not know is refused, never ignored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response, StreamingResponse

from pipeline_lib.play import Player
from tasks.use.asking import Asked, Asking, ChatAsked, Limits, TextAsked
from tasks.use.local_server import guard, refusal, told
from tasks.use.queueing import Answer, Desk, FullError, Question
from tasks.use.replying import Reply, stream


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
    guard(app, limits.body_kb, key)
    asking = Asking(player, agents, read_problem, limits)

    @app.get("/health")
    async def health() -> Response:
        return JSONResponse({"status": "ok"})

    @app.get("/v1/models")
    async def models() -> Response:
        held = [{"id": name, "object": "model", "created": 0, "owned_by": "symposium"} for name in asking.models]
        return JSONResponse({"object": "list", "data": held})

    @app.post("/v1/chat/completions")
    async def chat(asked: ChatAsked) -> Response:
        return await _answer(desk, asked, asking.chat(asked))

    @app.post("/v1/completions")
    async def completions(asked: TextAsked) -> Response:
        return await _answer(desk, asked, asking.text(asked))

    return app


async def _answer(desk: Desk, asked: Asked, question: Question) -> Response:
    loop = asyncio.get_running_loop()
    heard: asyncio.Queue[tuple[int, str] | Answer | BaseException] = asyncio.Queue()

    def put(item: tuple[int, str] | Answer | BaseException) -> None:
        loop.call_soon_threadsafe(heard.put_nowait, item)

    question.done = put
    if asked.stream:
        question.wrote = lambda number, text: put((number, text))
    try:
        desk.ask(question)
    except FullError as error:
        return refusal(429, str(error), None, {"Retry-After": "1"})
    reply = Reply(asked)
    if asked.stream:
        return StreamingResponse(stream(question, heard, reply), media_type="text/event-stream")
    try:
        found = await heard.get()
    finally:
        question.gone = True
    if isinstance(found, Answer):
        return JSONResponse(reply.whole(found))
    assert isinstance(found, BaseException)
    return refusal(*told(found), None)
