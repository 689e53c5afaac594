"""`symposium play` as a page on this machine: the same episodes, sent event by event (server-sent events).

A problem's tests are trusted code, so anyone who can play here can run code: every request needs the key in the address
that is printed at the start.  A team is loaded for its episode and released afterwards, so that an open page uses no
GPU memory; modules with a long import time are imported by the first request.

An episode as events for a page: JSON values; texts of agents are sanitised.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict

from pipeline_lib.environment_api.metrics import Metrics, describe
from pipeline_lib.environment_api.registry import find
from pipeline_lib.report.text import STYLE, coloured, harmless
from pipeline_lib.settings import load_params
from tasks.use.choosing import choose_team, named_problem, offers, typed_problem
from tasks.use.episode import AgentAnswer, PlayedTurn, Show, facts
from tasks.use.local_server import address, event, guard, listen, refusal, run, status_and_message

if TYPE_CHECKING:
    from pipeline_lib.play.watching import Generation
    from tasks.use.episode import Played


class PageShow(Show):
    """Sends the events of an episode to a page: JSON values with ``kind`` and ``side``, the number of the team.

    An exception of ``send`` ends the episode.
    """

    def __init__(self, side: int, metrics: Metrics, send: Callable[[dict[str, Any]], None]) -> None:
        self._side, self._metrics, self._send_event = side, metrics, send

    def prompted(self, generation: Generation) -> None:
        self._send(
            "prompted",
            agent=generation.agent,
            turn=generation.turn,
            round=generation.round,
            prompt=harmless(generation.prompt),
            tool=generation.tool,
        )

    def wrote(self, generation: Generation, text: str) -> None:
        self._send("wrote", text=harmless(text))

    def finished(self, generation: Generation, answer: AgentAnswer) -> None:
        self._send("finished", tokens=answer.tokens, cut=answer.finish == "length")

    def turned(self, number: int, turn: PlayedTurn) -> None:
        exhibit = turn.exhibit
        described = ((describe(name, self._metrics), value) for name, value in turn.metrics.items())
        self._send(
            "turned",
            turn=number,
            result=coloured(exhibit.text, exhibit.language) if exhibit else [],
            checks=[[harmless(c.what), c.passed, harmless(c.answer)] for c in (exhibit.checks if exhibit else ())],
            reward=turn.reward,
            terms=list(turn.terms.items()),
            metrics=[[metric.label, metric.text(value)] for metric, value in described],
            facts=[harmless(fact) for fact in facts(turn)],
        )

    def ended(self, played: Played) -> None:
        self._send("ended", turns=len(played.turns), reward=played.reward)

    def _send(self, kind: str, **values: Any) -> None:
        self._send_event({"kind": kind, "side": self._side, **values})


#: Largest body of a request, kibibytes: a problem that was typed, or read from a file.
BODY_KB = 1024
#: Where the page has the style of `coloured` code.
COLOURS = "/* colours of code */"

SendEvent = Callable[[dict[str, Any]], None]
EventQueue = asyncio.Queue[dict[str, Any] | None]
StopFlag = threading.Event


class EpisodeRequest(BaseModel):
    """A request to play an episode."""

    model_config = ConfigDict(extra="forbid")
    team: str = "selected"  #: as in `symposium play --team`
    beside: str = ""  #: another team that plays the same problem afterwards; empty: none
    problem: str = ""  #: id of a prepared problem; empty: the first validation problem
    typed: str = ""  #: the problem itself instead of an id, in the environment's text form or as JSON
    seed: int = 0  #: of all draws


class DisconnectedError(Exception):
    """The browser has closed the connection, so the episode is cancelled."""


def make_page(
    key: str, episode: Callable[[EpisodeRequest, SendEvent], None], offered: Callable[[], dict[str, Any]]
) -> FastAPI:
    """Return the application; every request except that for the page itself must have the bearer token ``key``.

    ``episode`` plays the requested episode and sends each event, in a separate thread; ``offered`` returns the
    available teams and problems.
    """
    app = FastAPI(title="Symposium", docs_url=None, redoc_url=None, openapi_url=None)
    guard(app, BODY_KB, key, public=("/", "/health"))
    html = (Path(__file__).parent / "page.html").read_text(encoding="utf-8").replace(COLOURS, STYLE)
    playing = threading.Lock()

    @app.get("/")
    async def page() -> Response:
        return HTMLResponse(html, headers={"Content-Security-Policy": policy(html), "Cache-Control": "no-store"})

    @app.get("/health")
    async def health() -> Response:
        return JSONResponse({"status": "ok"})

    @app.get("/offers")
    async def offers() -> Response:
        try:
            return JSONResponse(await run_in_threadpool(offered))
        except Exception as error:
            return refusal(*status_and_message(error), None)

    @app.post("/play")
    async def play(request: EpisodeRequest) -> Response:
        if not playing.acquire(blocking=False):
            return refusal(429, "an episode is being played already; try again when it has ended", None)
        events, stopped = _begin(request, episode, playing)
        return StreamingResponse(_events(events, stopped), media_type="text/event-stream")

    return app


def policy(html: str) -> str:
    """Return the content security policy: only the page's own script, by its digest, may run and call this server."""
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _begin(
    request: EpisodeRequest, episode: Callable[[EpisodeRequest, SendEvent], None], playing: threading.Lock
) -> tuple[EventQueue, StopFlag]:
    """Play an episode in a separate thread, which owns its sandbox; return its event queue and its stop flag."""
    loop = asyncio.get_running_loop()
    events, stopped = EventQueue(), StopFlag()

    def send(found: dict[str, Any] | None) -> None:
        if stopped.is_set() and found is not None:
            raise DisconnectedError
        loop.call_soon_threadsafe(events.put_nowait, found)

    def perform() -> None:
        try:
            episode(request, send)
        except DisconnectedError:
            pass
        except Exception as error:
            message = status_and_message(error)[1]
            if not stopped.is_set():
                send({"kind": "failed", "message": message})
        finally:
            playing.release()
            send(None)

    threading.Thread(target=perform, name="episode", daemon=True).start()
    return events, stopped


async def _events(events: EventQueue, stopped: StopFlag) -> AsyncIterator[str]:
    try:
        while (found := await events.get()) is not None:
            yield event(found)
    finally:
        stopped.set()


def play_episode(request: EpisodeRequest, send: SendEvent) -> None:
    """Play an episode with the current settings, one team after the other.

    Raises:
        ChoiceError, ProblemsError, SettingsError, PolicyError: there is no such team or problem, or it does not open.
    """
    from tasks.use.playing import opened, play  # torch: a page on which nobody plays has none

    params = load_params()
    problem = typed_problem(params, request.typed) if request.typed else named_problem(request.problem)
    choices = [choose_team(params, words) for words in (request.team, request.beside) if words]
    metrics = find(params.environment.kind).metrics()
    for side, choice in enumerate(choices):
        send({"kind": "team", "side": side, "title": choice.title, "problem": harmless(str(problem.id))})
        with opened(params, choice, problem) as player:
            play(player, choice.title, problem, request.seed, PageShow(side, metrics, send))


def offered_here() -> dict[str, Any]:
    """Return the available teams and problems with the current settings."""
    return offers(load_params())


def serve_page(port: int, key: str, ready: Callable[[str], None]) -> None:
    """Serve the page on a port of 127.0.0.1 (0: a free one) until the process is asked to end; OSError if it is taken.

    ``ready`` is called with the page's address, key included, as soon as requests are accepted.
    """
    with listen(port) as listening:
        ready(f"{address(listening)}/#{key}")
        run(make_page(key, play_episode, offered_here), listening)
