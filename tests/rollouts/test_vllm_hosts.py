"""What a vllm engine says of a server that is down, or is no vLLM; none is needed for that."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from pipeline_lib.rollouts.engine import EngineError
from pipeline_lib.rollouts.vllm_hosts import ServerHost
from tests.http_server import HttpServer, Reply

SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": 0}
ROW = {"adapter": "", "prompt": [5, 6], "n": 2, "seed": 1, "max_tokens": 4, "ends": [1], "stops": []}


class Confused(HttpServer):
    """Serves a model, and answers requests for completions without token ids."""

    def get(self, path: str) -> Reply:
        return Reply.json({"data": [{"id": "tiny", "max_model_len": 64}]})

    def post(self, path: str, body: dict[str, Any], authorisation: str) -> Reply:
        return Reply.json({"choices": [{"index": 0, "text": "hello"}, {"index": 1, "text": "hello"}]})


@pytest.fixture
def confused() -> Iterator[str]:
    server = Confused()
    yield server.url
    server.close()


def host_at(url: str) -> ServerHost:
    host = ServerHost(url, concurrency=2, timeout=5)
    host._client.pause = 0.01
    return host


def test_a_server_that_is_down() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    host = host_at(url)
    with pytest.raises(EngineError, match=r"/v1/models: no answer .*tried 4 times. Is the server running there"):
        host.call("start", arguments={})
    host.close()


def test_a_server_that_answers_nonsense(confused: str) -> None:
    host = host_at(confused)
    assert host.call("start", arguments={})["context"] == 64
    with pytest.raises(EngineError, match=r"/v1/completions: the answer makes no sense: .*hello"):
        host.call("generate", rows=[ROW], sampling=SAMPLING)
    host.close()
