"""JSON over HTTP with retries; engines and judges that use a server share this client.

A request is tried again if the server is down, busy (429) or broken (5xx), takes too long, or answers with something
else than the requested JSON object; the pause doubles each time, unless the server names one.  A request that the
server refuses (any other 4xx) is not tried again.  Every failure ends as a `ServerError`, or as an error class of the
caller's choice; it names the request, the answer and what to do.  Data are sent only to the given URL: redirects are
refused, because they would also receive the key.  No message quotes the key, wherever a server repeats it.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import Message
from typing import IO, Any, TypeVar

T = TypeVar("T")

_LONGEST_PAUSE = 60.0
_SHOWN = 300
#: Most bytes that are read of an answer, and of a refusal.
_LONGEST_ANSWER, _LONGEST_REFUSAL = 256 * 2**20, 2**16


class ServerError(RuntimeError):
    """A server did not answer, or refused; the message says which, and what to do."""


def read_key(variable: str, setting: str, failure: type[Exception] = ValueError) -> str:
    """Return the key that an environment variable holds; empty where no variable is named, for servers without keys.

    White space around it, such as the last line break of a file, is no part of it.

    Args:
        variable: its name, or an empty string.
        setting: where that name is set, for the message.
        failure: the error to raise.

    Raises:
        ValueError: or ``failure``: the variable is not set, or empty, or has a character that cannot be sent.
    """
    key = os.environ.get(variable, "").strip() if variable else ""
    if variable and not key:
        raise failure(
            f"{setting}: the environment variable {variable} is not set; put the server's key there, "
            f"or leave {setting} empty for a server that needs none"
        )
    if not (key.isascii() and key.isprintable()):
        raise failure(
            f"{setting}: what the environment variable {variable} holds is no key: it has a line break or another "
            "character that cannot be sent; accepted: printable ASCII characters"
        )
    return key


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Turns a redirect into the HTTP error that it is for an API."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        """Refuse."""


@dataclass(slots=True)
class HttpClient:
    """Talks to one server."""

    url: str  #: what paths are appended to, for example ``http://127.0.0.1:8000/v1``
    key: str = ""  #: sent as bearer token; empty for none
    retries: int = 5  #: how often a failed request is tried again
    timeout: float = 600.0  #: seconds that a request may take until its answer has arrived in full
    pause: float = 1.0  #: seconds before the first new try; doubles each time
    failure: type[Exception] = ServerError  #: the error that a request ends as which was refused or failed each time
    retried: int = 0  #: how many tries failed and were repeated
    closing: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def post(self, path: str, body: dict[str, Any], read: Callable[[Any], T]) -> T:
        """Send ``body`` and return what ``read`` makes of the JSON that comes back.

        Args:
            path: appended to the URL.
            body: sent as JSON.
            read: takes the answer apart; raises AttributeError, LookupError, TypeError or ValueError if it is not what
                was asked for.

        Raises:
            ServerError: or `failure`: the request was refused, or failed each time.
        """
        return self._insist("POST", path, json.dumps(body).encode(), lambda raw: read(json.loads(raw)))

    def command(self, path: str, body: dict[str, Any]) -> None:
        """Send ``body`` and take any successful answer for a yes; see `post`."""
        self._insist("POST", path, json.dumps(body).encode(), lambda raw: None)

    def get(self, path: str, read: Callable[[Any], T]) -> T:
        """Ask for ``path``; see `post`."""
        return self._insist("GET", path, None, lambda raw: read(json.loads(raw)))

    def _insist(self, method: str, path: str, body: bytes | None, read: Callable[[bytes], T]) -> T:
        problem = ""
        for attempt in range(self.retries + 1):
            try:
                return self._once(method, path, body, read)
            except _Again as again:
                problem = str(again)
                if attempt == self.retries or self.closing.is_set():
                    break
                pause = self.pause * 2**attempt if again.wait is None else again.wait
                with self._lock:
                    self.retried += 1
                self.closing.wait(min(pause, _LONGEST_PAUSE))
        raise self.failure(
            f"{self.url}{path}: {problem}; tried {self.retries + 1} times. Is the server running there, and is it one "
            f"with an OpenAI-compatible API? What was finished before is kept; run the same command again"
        )

    def _once(self, method: str, path: str, body: bytes | None, read: Callable[[bytes], T]) -> T:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        request = urllib.request.Request(self.url + path, body, headers, method=method)
        end = time.monotonic() + self.timeout
        try:
            with urllib.request.build_opener(_NoRedirects).open(request, timeout=self.timeout) as answer:
                raw = _received(answer, end, _LONGEST_ANSWER)
        except urllib.error.HTTPError as error:
            raise self._refusal(path, error, end) from None
        except (OSError, EOFError) as error:  # URLError, timeouts and broken connections are OSErrors
            raise _Again(f"no answer ({self._hidden(str(getattr(error, 'reason', error)))})") from None
        except Exception as error:  # http.client raises its own kinds for what is not HTTP
            raise _Again(f"not an HTTP answer ({type(error).__name__}: {self._hidden(str(error))})") from None
        try:
            return read(raw)
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
            shown = self._hidden(raw.decode(errors="replace"))[:_SHOWN]
            raise _Again(f"the answer makes no sense: {shown!r}") from None

    def _refusal(self, path: str, error: urllib.error.HTTPError, end: float) -> Exception:
        """Return what to raise for an HTTP status other than success."""
        with error:
            try:
                raw = _received(error, end, _LONGEST_REFUSAL)
            except (OSError, http.client.HTTPException):  # the status says enough
                raw = b""
        text = self._hidden(raw.decode(errors="replace")).strip()[:_SHOWN]
        said = f"HTTP {error.code} {self._hidden(error.reason)}: {text}"
        if error.code in (408, 409, 425, 429) or error.code >= 500:
            return _Again(said, _seconds(error.headers.get("Retry-After")))
        hint = {
            401: "check the key",
            403: "check the key and what it may use",
            404: "check the URL (it usually ends with /v1) and the model's name",
        }.get(error.code, "the server does not accept this request")
        return self.failure(f"{self.url}{path}: {said}; {hint}")

    def _hidden(self, text: str) -> str:
        """Return a text without the key, as it is or in JSON; to be cut only afterwards, or a part could stay."""
        if not self.key:
            return text
        return text.replace(self.key, "***").replace(json.dumps(self.key)[1:-1], "***")


def _received(answer: Any, end: float, most: int) -> bytes:
    """Return the body of an answer.

    Args:
        answer: of `http.client`, or the error that holds it.
        end: until when it must have arrived, by `time.monotonic`.
        most: greatest size in bytes.

    Raises:
        OSError: it is longer, takes longer, or breaks off.
    """
    found = bytearray()
    while piece := answer.read1(2**16):
        found += piece
        if len(found) > most:
            raise OSError(f"the answer has more than {most} bytes")
        if time.monotonic() > end:
            raise TimeoutError("timed out")
    if answer.length:
        raise OSError("the answer broke off")
    return bytes(found)


class _Again(Exception):
    """This try failed in a way that another may not; ``wait`` seconds if the server said so."""

    def __init__(self, text: str, wait: float | None = None) -> None:
        super().__init__(text)
        self.wait = wait


def _seconds(header: str | None) -> float | None:
    """Return a Retry-After header's seconds; dates and nonsense are ignored."""
    try:
        return max(0.0, float(header)) if header else None
    except ValueError:
        return None


def count_usage(answer: Any, costs: dict[str, float], who: str) -> None:
    """Add what an answer of a chat API cost: ``<who>_requests``, ``<who>_prompt_tokens``, ``<who>_completion_tokens``.

    Args:
        answer: the reply as JSON; counts that it does not give are 0.
        costs: amounts by name.
        who: the model that was asked.
    """
    usage = answer.get("usage") or {}
    for name in ("prompt_tokens", "completion_tokens"):
        count = usage.get(name)
        costs[f"{who}_{name}"] = costs.get(f"{who}_{name}", 0.0) + (
            count if isinstance(count, int) and count > 0 else 0
        )
    costs[f"{who}_requests"] = costs.get(f"{who}_requests", 0.0) + 1
