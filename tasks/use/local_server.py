"""Servers for this machine only: the checks of every request, and how the servers run.

A page in a browser may send requests to this machine: it cannot send them under this machine's name, nor JSON, nor from
another origin.  Other users of this machine could; a key keeps them out.
"""

import errno
import hmac
import json
import logging
import socket
from collections.abc import Collection
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from pipeline_lib.rollouts.engine import EngineError

#: The only address that servers here listen on, and the names by which they may be called.
HOST = "127.0.0.1"
NAMES = [HOST, "localhost"]


class RefusedError(Exception):
    """The request cannot be answered: HTTP status, message, and the parameter that is at fault."""

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.param = status, param


def guard(app: FastAPI, body_kb: int, key: str = "", public: Collection[str] = ()) -> None:
    """Let an application answer only permitted requests, and give all refusals one JSON form.

    A body has at most ``body_kb`` KiB.  Every request must have the bearer token ``key``, if it is not empty, except
    for the ``public`` paths.
    """
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=NAMES)

    @app.middleware("http")
    async def guarded(request: Request, call_next: Any) -> Response:
        origin = request.headers.get("origin")
        if origin is not None and origin != f"http://{request.headers.get('host', '')}":
            return refusal(403, f"pages of {origin} may not ask this server", None)
        given = request.headers.get("authorization", "").encode()
        if key and request.url.path not in public and not hmac.compare_digest(given, f"Bearer {key}".encode()):
            return refusal(401, "the key is missing or wrong; send it as `Authorization: Bearer ...`", None)
        if request.method == "POST":
            if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
                return refusal(415, "the body must be application/json", None)
            length = request.headers.get("content-length", "")
            if not length.isdigit():
                return refusal(411, "the length of the body must be said", None)
            if int(length) > 1024 * body_kb:
                return refusal(413, f"the body is longer than {body_kb} KiB", None)
        answer: Response = await call_next(request)
        return answer

    @app.exception_handler(RefusedError)
    async def refused(request: Request, error: RefusedError) -> Response:
        return refusal(error.status, str(error), error.param)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            why = f"{first['ctx']['error']}, at character {first['loc'][1]}"
            return refusal(400, f"the body is not JSON ({why}); send one JSON object", None)
        place = ".".join(str(part) for part in first["loc"][1:])
        what = "this API does not know it" if first["type"] == "extra_forbidden" else first["msg"]
        if isinstance(first["input"], float):
            what += f", got {first['input']}"
        return refusal(400, f"{place}: {what}" if place else what, place or None)

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        return refusal(error.status_code, str(error.detail), None)


def listen(port: int) -> socket.socket:
    """Return a socket that listens on a port of `HOST`, 0 for any free one.

    Raises:
        OSError: the port cannot be used.
    """
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise OSError(f"port {port} is in use; --port names another one, 0 any free one") from None


def address(listening: socket.socket) -> str:
    """Return the address of a socket, without a slash at the end."""
    return f"http://{HOST}:{listening.getsockname()[1]}"


def run(app: FastAPI, listening: socket.socket) -> None:
    """Serve until the process is asked to end, usually by Ctrl-C, which raises no error."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5))
    log = logging.getLogger("uvicorn.error")

    def serving(record: logging.LogRecord) -> bool:
        return not server.should_exit  # requests that its end cancels are no errors

    log.addFilter(serving)
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:  # uvicorn has let go of its connections by now
        return
    finally:
        log.removeFilter(serving)


def refusal(status: int, message: str, param: str | None, headers: dict[str, str] | None = None) -> JSONResponse:
    """Return a refusal in the form that clients of OpenAI's API read."""
    content = {"error": {"message": message, "type": kind_of(status), "param": param, "code": None}}
    return JSONResponse(content, status, headers)


def kind_of(status: int) -> str:
    """Return OpenAI's type of an error with this status."""
    return "invalid_request_error" if status < 500 else "server_error"


def status_and_message(error: BaseException) -> tuple[int, str]:
    """Return HTTP status and message of an error; what only the owner of the server can use is logged instead."""
    if isinstance(error, EngineError):
        logging.getLogger(__name__).error("the engine failed: %s", error)
        return 500, f"the engine failed: {str(error).partition(chr(10))[0]} (see the server's log)"
    if type(error).__module__.partition(".")[0] in {"pipeline_lib", "tasks"}:
        return 400, str(error)
    logging.getLogger(__name__).error("a request failed", exc_info=error)
    return 500, f"{type(error).__name__}, see the server's log"


def event(value: Any) -> str:
    """Return a server-sent event."""
    return f"data: {json.dumps(value)}\n\n"
