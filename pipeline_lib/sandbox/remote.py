"""The client of a sandbox server: the same jobs over HTTP.

Promises: a lost connection costs only time; jobs without a verdict are sent again.  If the server does not answer for
longer than ``patience_s``, the remaining jobs end as ``infra_error``.
"""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pipeline_lib.sandbox import wire
from pipeline_lib.sandbox.backend import SandboxUnavailable
from pipeline_lib.sandbox.jobs import Limits, Status, Verdict
from pipeline_lib.sandbox.local import blank_verdict
from pipeline_lib.sandbox.tests_source import Planned

TOKEN_VARIABLE = "SYMPOSIUM_SANDBOX_TOKEN"
DEFAULT_PORT = 7811
_BATCH_JOBS, _BATCH_BYTES = 256, 4 << 20
_SILENCE_S = 120.0  # between two verdicts of one batch
_TRY_AGAIN = (429, 500, 502, 503, 504)


class _Refused(Exception):
    """The server refused the request; a retry would fail, too."""


class RemoteBackend:
    """Sends jobs to a sandbox server.

    Args:
        limits: what a program may use; a job may have its own, and the server's own limits are the maximum.
        address: for example ``http://127.0.0.1:7811``.
        token: the server's token; by default from ``token_file``, else from the environment variable
            ``SYMPOSIUM_SANDBOX_TOKEN``.
        token_file: a file with nothing else in it.
        patience_s: seconds to retry if the server does not answer.

    Raises:
        SandboxUnavailable: the server does not answer, or rejects the token.
    """

    name = "remote"

    def __init__(
        self,
        limits: Limits,
        address: str = f"http://127.0.0.1:{DEFAULT_PORT}",
        token: str | None = None,
        token_file: str | None = None,
        patience_s: float = 60.0,
    ) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"address is {address!r}; it must look like http://127.0.0.1:{DEFAULT_PORT}")
        self._limits = limits
        self._parts = parts
        self._token = find_token(token, token_file)
        self._patience_s = patience_s
        self._address = address
        self._closed = False
        try:
            self.level = str(self.health()["isolation"])
        except (_Refused, OSError, http.client.HTTPException, ValueError, KeyError) as error:
            raise SandboxUnavailable(f"the sandbox server at {address} cannot be used: {error}") from None

    def execute(self, jobs: Sequence[Planned]) -> Iterator[Verdict]:
        """Yield the verdicts of ``jobs`` as they come."""
        if self._closed:
            raise RuntimeError("the executor is closed")
        bodies: dict[str, tuple[Planned, str]] = {}
        for planned in jobs:
            own = replace(planned.job, limits=planned.job.limits or self._limits)
            bodies[own.id] = (planned, json.dumps(asdict(own)))
        deadline = time.monotonic() + self._patience_s
        pause_s = 0.1
        while bodies:
            reason = ""
            try:
                for verdict in self._batch([body for _, body in _first(bodies)]):
                    del bodies[verdict.id]
                    yield replace(verdict, backend=f"remote/{verdict.backend}")
                    deadline, pause_s = time.monotonic() + self._patience_s, 0.1
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                reason = f"the sandbox server at {self._address} does not answer: {error}"
                if time.monotonic() > deadline:
                    break
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, 5.0)
            except _Refused as error:
                reason = f"the sandbox server at {self._address} refuses: {error}"
                break
        for planned, _ in bodies.values():
            yield blank_verdict(planned, Status.INFRA_ERROR, reason)

    def health(self) -> dict[str, Any]:
        """Return the facts of the server."""
        connection = self._connect()
        try:
            connection.request("GET", "/v1/health", headers=self._headers())
            return dict(json.loads(_read(connection.getresponse())))
        finally:
            connection.close()

    def close(self) -> None:
        """Refuse further jobs."""
        self._closed = True

    def _batch(self, bodies: list[str]) -> Iterator[Verdict]:
        connection = self._connect()
        try:
            text = '{"jobs":[' + ",".join(bodies) + "]}"
            connection.request(
                "POST", "/v1/jobs", text.encode(), self._headers() | {"Content-Type": "application/json"}
            )
            response = connection.getresponse()
            if response.status != 200:
                _read(response)
            for _ in bodies:
                line = response.readline()
                if not line.endswith(b"\n"):
                    raise http.client.IncompleteRead(line)
                yield wire.verdict_from_json(json.loads(line))
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        return kind(str(self._parts.hostname), self._parts.port, timeout=_SILENCE_S)

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"}


def _first(bodies: dict[str, tuple[Planned, str]]) -> list[tuple[Planned, str]]:
    batch: list[tuple[Planned, str]] = []
    size = 0
    for entry in bodies.values():
        size += len(entry[1])
        if batch and (size > _BATCH_BYTES or len(batch) == _BATCH_JOBS):
            break
        batch.append(entry)
    return batch


def _read(response: http.client.HTTPResponse) -> bytes:
    """Return the body of a response with status 200; raises OSError for transient errors, `_Refused` for others."""
    body = response.read()
    if response.status == 200:
        return body
    text = f"{response.status} {body.decode(errors='replace').strip()[:500]}"
    raise (OSError if response.status in _TRY_AGAIN else _Refused)(text)


def find_token(token: str | None, token_file: str | None) -> str:
    """Return the token given, or the one in the file, or the one in the environment; raises SandboxUnavailable."""
    if token is None and token_file is not None:
        token = Path(token_file).read_text().strip()
    token = token or os.environ.get(TOKEN_VARIABLE)
    if not token:
        raise SandboxUnavailable(
            f"no token for the sandbox server: set {TOKEN_VARIABLE}, or name a file with sandbox.token_file"
        )
    return token


def exceeded_limit(limits: Limits, allowed: Limits) -> str | None:
    """Return the name of a limit that is greater than allowed, None if there is none."""
    maximum = asdict(allowed)
    return next((name for name, value in asdict(limits).items() if value > maximum[name]), None)
