"""The client of JSON servers, against a real server that misbehaves in ways that the standard library's cannot."""

import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import pytest

from pipeline_lib import http_client
from pipeline_lib.http_client import HttpClient, ServerError, read_key

KEY = "sk-'quoted\\"
OK = b"HTTP/1.1 200 OK\r\n"


class RawServer:
    """Answers each request with given pieces of bytes and closes the connection."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.heads: list[bytes] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                found = b""
                while not found.endswith(b"{}"):
                    found += connection.recv(65536)
                self.heads.append(found)
                try:
                    for piece in self._pieces:
                        connection.sendall(piece)
                except OSError:  # the client has gone
                    continue

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


Ask = Callable[..., str]


@pytest.fixture
def ask() -> Iterator[Ask]:
    servers = []

    def refused(*pieces: bytes | Iterable[bytes], timeout: float = 5.0) -> str:
        """Return the message of the error that a request to such a server ends with."""
        flat = [[piece] if isinstance(piece, bytes) else piece for piece in pieces]
        servers.append(RawServer(itertools.chain.from_iterable(flat)))
        client = HttpClient(servers[-1].url, KEY, retries=0, timeout=timeout)
        with pytest.raises(ServerError) as caught:
            client.post("/", {}, lambda answer: answer["fine"])
        return str(caught.value)

    yield refused
    for server in servers:
        server.close()


def test_the_time_limit_is_that_of_the_whole_answer(ask: Ask) -> None:
    """Servers that are busy may send white space every other moment, without end."""

    def drip() -> Iterator[bytes]:
        while True:
            yield b" "
            time.sleep(0.02)

    assert "no answer (timed out)" in ask(OK, b"\r\n", drip(), timeout=0.2)


def test_an_answer_without_end_is_not_taken_into_memory(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "_LONGEST_ANSWER", 10**6)
    assert "the answer has more than 1000000 bytes" in ask(OK, b"\r\n", itertools.repeat(b" " * 10**5))


def test_an_answer_that_breaks_off_is_no_answer(ask: Ask) -> None:
    assert "no answer (the answer broke off)" in ask(OK, b'Content-Length: 99\r\n\r\n{"fine": 1}')


def test_json_that_is_nested_too_deeply_makes_no_sense(ask: Ask) -> None:
    assert "the answer makes no sense: '[[[" in ask(OK, b"\r\n", b"[" * 200000)


@pytest.mark.parametrize("rest", [b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b"Content-Length: 99\r\n\r\nabc"])
def test_a_refusal_whose_text_is_broken_is_a_refusal(ask: Ask, rest: bytes) -> None:
    assert "HTTP 400 Bad: ; the server does not accept this" in ask(b"HTTP/1.1 400 Bad\r\n", rest)


@pytest.mark.parametrize("written", [KEY, json.dumps(KEY)])
@pytest.mark.parametrize("before", ["", "x" * 290])
@pytest.mark.parametrize("status", ["200 OK", "401 No", "500 No"])
def test_no_part_of_the_key_is_in_a_message(ask: Ask, written: str, before: str, status: str) -> None:
    message = ask(f"HTTP/1.1 {status}\r\n\r\n{before}{written}".encode())
    assert "***" in message and "sk-" not in message and "quoted" not in message


def test_no_status_line_shows_the_key(ask: Ask) -> None:
    assert "bad key ***" in ask(f"HTTP/1.1 401 bad key {KEY}\r\n\r\n".encode())


def test_a_redirect_is_not_followed(ask: Ask) -> None:
    other = RawServer([OK + b"\r\n" + b'{"fine": 1}'])
    assert "HTTP 307 Go" in ask(b"HTTP/1.1 307 Go\r\nLocation: " + other.url.encode() + b"\r\n\r\n")
    assert not other.heads
    other.close()


def test_a_key_is_read_without_the_line_break_of_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_A_FILE", " sk-secret\n")
    assert read_key("OF_A_FILE", "key_variable") == "sk-secret"
    for wrong in ("sk-secret\nagain", "sk-secrét"):
        monkeypatch.setenv("OF_A_FILE", wrong)
        with pytest.raises(
            ValueError, match="key_variable: what the environment variable OF_A_FILE holds is"
        ) as caught:
            read_key("OF_A_FILE", "key_variable")
        assert "secr" not in str(caught.value)
    monkeypatch.setenv("OF_A_FILE", "\n")
    with pytest.raises(ValueError, match="OF_A_FILE is not set"):
        read_key("OF_A_FILE", "key_variable")
