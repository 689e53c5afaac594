"""`symposium play` as a page on this machine: the same episodes, told event by event (server-sent events).

A problem's tests are trusted code, so whoever may play here may run code: every request needs the key in the address
that is printed at the start.  A team is loaded for its episode and let go of afterwards, so that a page that stays open
holds no memory of a GPU on which somebody trains; what takes long to import waits for the first request.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict

from pipeline_lib.report.code import STYLE
from tasks.use.local_server import address, event, guard, listen, refusal, run, told

#: Largest body of a request, kibibytes: a problem that was typed, or read from a file.
BODY_KB = 1024
#: Where the page has the style of `coloured` code.
COLOURS = "/* colours of code */"

Tell = Callable[[dict[str, Any]], None]
Heard = asyncio.Queue[dict[str, Any] | None]
Left = threading.Event


class Wanted(BaseModel):
    """An episode that somebody wants to see.

    Attributes:
        team: as `symposium play --team` has it.
        beside: another team that plays the same problem afterwards; empty: none.
        problem: id of a prepared problem; empty: the first validation problem.
        typed: the problem itself, instead of an id: as people type it, or its JSON.
        seed: of all draws.
    """

    model_config = ConfigDict(extra="forbid")
    team: str = "selected"
    beside: str = ""
    problem: str = ""
    typed: str = ""
    seed: int = 0


class LeftError(Exception):
    """Whoever watched has closed the page: the episode is given up."""


def make_page(key: str, episode: Callable[[Wanted, Tell], None], offered: Callable[[], dict[str, Any]]) -> FastAPI:
    """Return the application.

    Args:
        key: every request but that for the page itself must bring it as bearer.
        episode: plays what is wanted, and tells each event as it happens; called in a thread of its own.
        offered: returns what there is to choose from.
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
            return refusal(*told(error), None)

    @app.post("/play")
    async def play(wanted: Wanted) -> Response:
        if not playing.acquire(blocking=False):
            return refusal(429, "an episode is being played already; try again when it has ended", None)
        heard, left = _begin(wanted, episode, playing)
        return StreamingResponse(_events(heard, left), media_type="text/event-stream")

    return app


def policy(html: str) -> str:
    """Return the security policy of a page: its own script, known by its digest, may ask this server, and nobody."""
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _begin(wanted: Wanted, episode: Callable[[Wanted, Tell], None], playing: threading.Lock) -> tuple[Heard, Left]:
    """Play an episode in a thread of its own, where its sandbox belongs, and return what it will be heard through."""
    loop = asyncio.get_running_loop()
    heard, left = Heard(), Left()

    def tell(found: dict[str, Any] | None) -> None:
        if left.is_set() and found is not None:
            raise LeftError
        loop.call_soon_threadsafe(heard.put_nowait, found)

    def perform() -> None:
        try:
            episode(wanted, tell)
        except LeftError:
            pass
        except Exception as error:
            message = told(error)[1]
            if not left.is_set():
                tell({"kind": "failed", "message": message})
        finally:
            playing.release()
            tell(None)

    threading.Thread(target=perform, name="episode", daemon=True).start()
    return heard, left


async def _events(heard: Heard, left: Left) -> AsyncIterator[str]:
    try:
        while (found := await heard.get()) is not None:
            yield event(found)
    finally:
        left.set()


def play_wanted(wanted: Wanted, tell: Tell) -> None:
    """Play an episode by the settings in force, each team after the other.

    Raises:
        ChoiceError, ProblemsError, SettingsError, PolicyError: there is no such team or problem, or it does not open.
    """
    from pipeline_lib.environment_api.registry import find
    from pipeline_lib.settings import load_params
    from tasks.use.choosing import choose_team, named_problem, typed_problem
    from tasks.use.opening import opened
    from tasks.use.page_events import PageShow
    from tasks.use.playing import play

    params = load_params()
    problem = typed_problem(params, wanted.typed) if wanted.typed else named_problem(wanted.problem)
    choices = [choose_team(params, words) for words in (wanted.team, wanted.beside) if words]
    metrics = find(params.environment.kind).metrics()
    for side, choice in enumerate(choices):
        tell({"kind": "team", "side": side, "title": choice.title, "problem": problem.id})
        with opened(params, choice, problem) as player:
            play(player, choice.title, problem, wanted.seed, PageShow(side, metrics, tell))


def offered_here() -> dict[str, Any]:
    """Return what there is to choose from, by the settings in force."""
    from pipeline_lib.settings import load_params
    from tasks.use.offering import offers

    return offers(load_params())


def serve_page(port: int, key: str, ready: Callable[[str], None]) -> None:
    """Serve the page until the process is asked to end.

    Args:
        port: of 127.0.0.1; 0 takes a free one.
        key: see `make_page`.
        ready: is told the page's address, key included, as soon as requests are taken.

    Raises:
        OSError: the port is taken.
    """
    with listen(port) as listening:
        ready(f"{address(listening)}/#{key}")
        run(make_page(key, play_wanted, offered_here), listening)
