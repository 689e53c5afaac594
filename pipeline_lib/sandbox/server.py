"""The sandbox as a server: jobs arrive as JSON over HTTP, and verdicts are returned line by line when they are ready.

Promises: every request needs the token; requests are limited in size, number and rate, and slow senders are
disconnected; no program gets more than the server's own limits.

Does not promise: protection against clients with the token.  Tests are trusted code, which only namespaces or Landlock
confine.  There is no TLS: over a network, put the server behind a proxy with TLS.
"""

from __future__ import annotations

import hmac
import json
import threading
import time
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pipeline_lib.sandbox import wire
from pipeline_lib.sandbox.executor import Executor
from pipeline_lib.sandbox.jobs import Job
from pipeline_lib.sandbox.remote import DEFAULT_PORT, exceeded_limit


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on requests."""

    request_mb: int = 16  #: largest request, MiB
    jobs: int = 1024  #: most jobs in a request
    rate: float = 50.0  #: requests per second and client address, on average
    burst: int = 100  #: requests a client may make at once
    connections: int = 64  #: concurrent connections
    silence_s: float = 30.0  #: longest pause of a sender, seconds


class SandboxServer(ThreadingHTTPServer):
    """Serves one executor.

    Args:
        executor: runs the jobs; it is not closed with the server.
        token: clients must send it as ``Authorization: Bearer ...``.
        host: address to listen on.
        port: 0 means a free one; see ``server_address``.
        bounds: limits on requests.
    """

    daemon_threads = True

    def __init__(
        self,
        executor: Executor,
        token: str,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        bounds: Bounds | None = None,
    ) -> None:
        if len(token) < 16:
            raise ValueError("the token is shorter than 16 characters and could be guessed")
        self.executor = executor
        self.token = token
        self.bounds = bounds or Bounds()
        self._slots = threading.BoundedSemaphore(self.bounds.connections)
        self._buckets: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()
        super().__init__((host, port), _Handler)

    def admit(self, client: str) -> bool:
        """Return whether ``client`` may make a request now."""
        now = time.monotonic()
        with self._lock:
            level, last = self._buckets.get(client, (float(self.bounds.burst), now))
            level = min(self.bounds.burst, level + (now - last) * self.bounds.rate)
            if len(self._buckets) > 10_000:
                self._buckets.clear()
            self._buckets[client] = (level - (level >= 1), now)
        return level >= 1

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one connection, unless too many are being answered."""
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()


class _Handler(BaseHTTPRequestHandler):
    server: SandboxServer
    server_version = "symposium-sandbox"
    sys_version = ""

    def setup(self) -> None:
        self.request.settimeout(self.server.bounds.silence_s)
        super().setup()

    def do_GET(self) -> None:
        if self._allowed():
            if self.path == "/v1/health":
                self._answer(200, json.dumps(self.server.executor.health()))
            else:
                self._answer(404, "there is GET /v1/health and POST /v1/jobs")

    def do_POST(self) -> None:
        if not self._allowed():
            return
        if self.path != "/v1/jobs":
            self._answer(404, "there is GET /v1/health and POST /v1/jobs")
            return
        try:
            jobs = self._jobs()
        except _Bad as error:
            self._answer(error.status, str(error))
            return
        try:
            verdicts = self.server.executor.stream(jobs)
            first = next(verdicts, None)
        except (ValueError, TypeError) as error:
            self._answer(400, str(error))
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Connection", "close")
        self.end_headers()
        while first is not None:
            self.wfile.write(json.dumps(asdict(first)).encode() + b"\n")
            first = next(verdicts, None)

    def _allowed(self) -> bool:
        if not self.server.admit(self.client_address[0]):
            self._answer(429, "too many requests; try again in a second")
            return False
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self.server.token}".encode()):
            self._answer(401, "the token is missing or wrong")
            return False
        return True

    def _jobs(self) -> list[Job]:
        """Return the jobs of the request; raises `_Bad` if they are not acceptable."""
        bounds = self.server.bounds
        length = self.headers.get("Content-Length", "")
        if not length.isdigit():
            raise _Bad(411, "the request needs a Content-Length")
        if int(length) > bounds.request_mb << 20:
            raise _Bad(413, f"the request has {length} bytes, {bounds.request_mb} MiB are allowed")
        try:
            entries = json.loads(self.rfile.read(int(length)))["jobs"]
            jobs = [wire.job_from_json(entry) for entry in entries]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise _Bad(400, f"the request holds no jobs: {type(error).__name__}: {error}") from None
        if len(jobs) > bounds.jobs:
            raise _Bad(413, f"the request holds {len(jobs)} jobs, {bounds.jobs} are allowed")
        if len({job.id for job in jobs}) < len(jobs):
            raise _Bad(400, "two jobs of the request have the same id")
        for job in jobs:
            greater = None if job.limits is None else exceeded_limit(job.limits, self.server.executor.limits)
            if greater is not None:
                allowed = getattr(self.server.executor.limits, greater)
                raise _Bad(
                    400, f"job {job.id!r}: limits.{greater} is {getattr(job.limits, greater)}, at most {allowed}"
                )
        return jobs

    def _answer(self, status: int, text: str) -> None:
        body = text.encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if status == 429:
            self.send_header("Retry-After", "1")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: requests of clients must not appear in a log."""


class _Bad(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
