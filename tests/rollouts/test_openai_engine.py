"""The openai engine against a tiny server that fails on command, and its settings."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline_lib.http_client import HttpClient, ServerError
from pipeline_lib.identity.code import Code
from pipeline_lib.policies.policy import remote_policy
from pipeline_lib.rollouts import EngineError, Request, Sampling, openai_engine
from pipeline_lib.rollouts.openai_engine import OpenAIEngine, OpenAIServer
from tests.http_server import HttpServer, Reply
from tests.rollouts.tiny import END, policy

KEY = "sk-not-to-be-written-down"


class Server(HttpServer):
    """Answers like a chat server; ``faults`` are served first, in order."""

    def __init__(self) -> None:
        self.faults: list[Reply] = []
        self.asked: list[tuple[str, dict[str, Any], str]] = []
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()
        self.reply: Callable[[dict[str, Any]], dict[str, Any]] = self.chat
        super().__init__()

    def post(self, path: str, body: dict[str, Any], authorisation: str) -> Reply:
        with self.lock:
            self.asked.append((path, body, authorisation))
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            fault = self.faults.pop(0) if self.faults else None
        time.sleep(0.01)
        reply = fault or Reply.json(self.reply(body))
        with self.lock:
            self.at_once -= 1
        return reply

    @staticmethod
    def chat(body: dict[str, Any]) -> dict[str, Any]:
        said = body["messages"][0]["content"]
        texts = [f"{body['model']} heard {said} #{body['seed']}+{i}" for i in range(body["n"])]
        choices = [
            {"index": i, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            for i, text in enumerate(texts)
        ]
        return {"choices": choices[::-1], "usage": {"prompt_tokens": 10, "completion_tokens": 4 * body["n"]}}


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def make(server: Server, monkeypatch: pytest.MonkeyPatch, **more: Any) -> OpenAIEngine:
    monkeypatch.setenv("TEAM_KEY", KEY)
    values = {"url": f"{server.url}/v1", "models": ("small", "big"), "key_variable": "TEAM_KEY", "cache": "", **more}
    engine = OpenAIEngine(OpenAIServer(**values))
    engine._client.pause = 0.01
    models = dict(zip(("helper", "main"), values["models"] * 2, strict=False))
    engine.load({agent: remote_policy(agent, model) for agent, model in models.items()})
    return engine


def requests(count: int = 3, n: int = 2) -> list[Request]:
    names = ("helper", "main")
    return [Request(names[i % 2], tuple(f"Größe {i}".encode()), n, i) for i in range(count)]


def test_actions_come_back_in_order_from_the_right_model(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    found = make(server, monkeypatch).generate(requests(), Sampling(0.7, 0.9, 0, 33))
    for number, actions in enumerate(found):
        model = ("small", "big")[number % 2]
        assert [a.text.split("#")[0] for a in actions] == [f"{model} heard Größe {number} "] * 2
        assert actions[0].text.endswith("+0") and actions[1].text.endswith("+1")
        assert all(bytes(a.ids).decode() == a.text and a.finish == "stop" for a in actions)
        assert all(len(a.logprobs) == len(a.ids) and all(math.isnan(v) for v in a.logprobs) for a in actions)
    path, body, authorisation = server.asked[0]
    assert path == "/v1/chat/completions" and authorisation == f"Bearer {KEY}"
    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.7, 0.9, 33) and "top_k" not in body
    assert len({body["seed"] for _, body, _ in server.asked}) == 3


def test_tokens_are_counted(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make(server, monkeypatch)
    engine.generate(requests(3), Sampling())
    counters = engine.counters
    assert (counters.requests, counters.actions) == (3, 6)
    assert (counters.prompt_tokens, counters.generated_tokens) == (30, 24)
    assert counters.extra["asked"] == 6 and counters.extra["retries"] == 0


def test_no_more_requests_in_flight_than_allowed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    make(server, monkeypatch, concurrency=3).generate(requests(20), Sampling())
    assert 1 < server.most_at_once <= 3


@pytest.mark.parametrize(
    "fault",
    [
        Reply(500, b"boom"),
        Reply(503, b"", {"Retry-After": "0"}),
        Reply(429, b"slow down", {"Retry-After": "0.05"}),
        Reply(200, b"<html>hello</html>"),
        Reply(200, b"[]"),
        Reply(200, b'{"choices": []}'),
        Reply(200, b'{"choices": [{"message": {"content": 3}, "finish_reason": "stop"}]}'),
        Reply(200, b'{"choices": [{"text": "the wrong api", "finish_reason": "stop"}]}'),
    ],
)
def test_passing_failures_are_tried_again(fault: Reply, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.faults = [fault] * 2
    engine = make(server, monkeypatch)
    found = engine.generate(requests(2), Sampling())
    assert [len(actions) for actions in found] == [2, 2]
    assert engine.counters.extra["retries"] == 2


def test_failures_that_last_say_who_said_what(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.faults = [Reply(200, b"I am a teapot")] * 50
    engine = make(server, monkeypatch, retries=2)
    with pytest.raises(EngineError, match=r"/v1/chat/completions: the answer makes no sense: 'I am a teapot'; tried 3"):
        engine.generate(requests(1), Sampling())
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("status", "hint"), [(400, "does not accept"), (401, "check the key"), (404, "check the URL"), (302, "HTTP 302")]
)
def test_refusals_are_not_tried_again(status: int, hint: str, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.faults = [Reply(status, b'{"error": "no such model"}', {"Location": "http://127.0.0.1:9/"})] * 9
    with pytest.raises(EngineError, match=hint) as caught:
        make(server, monkeypatch).generate(requests(1), Sampling())
    assert len(server.asked) == 1
    assert KEY not in str(caught.value) and "no such model" in str(caught.value)


def test_a_server_that_is_down(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make(server, monkeypatch, retries=1)
    server.close()
    with pytest.raises(EngineError, match=r"no answer .*refused.*tried 2 times. Is the server running there"):
        engine.generate(requests(4), Sampling())


def test_a_server_that_says_nothing_in_time() -> None:
    silent = threading.Event()

    class Silent(HttpServer):
        def post(self, path: str, body: dict[str, Any], authorisation: str) -> Reply:
            silent.wait(5)
            return Reply()

    server = Silent()
    client = HttpClient(server.url, retries=1, timeout=0.1, pause=0.01)
    with pytest.raises(ServerError, match=r"no answer .*timed out.*tried 2 times"):
        client.post("/x", {}, lambda value: value)
    silent.set()
    server.close()


def test_fewer_choices_than_asked_for_are_asked_for_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some servers ignore ``n``."""
    server.reply = lambda body: Server.chat({**body, "n": 1})
    found = make(server, monkeypatch).generate(requests(1, n=3), Sampling())[0]
    assert len(found) == 3 and len({a.text for a in found}) == 3
    assert [body["n"] for _, body, _ in server.asked] == [3, 2, 1]


def test_a_killed_evaluation_continues(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = make(server, monkeypatch, cache=str(tmp_path), concurrency=1, retries=0)
    server.reply = lambda body: Server.chat(body) if "Größe 3" not in str(body) else {"choices": "gone"}
    with pytest.raises(EngineError):
        first.generate(requests(6), Sampling())
    with (tmp_path / "actions.jsonl").open("a") as file:
        file.write('{"key": "half-writ')  # as a kill leaves it
    kept = {body["messages"][0]["content"] for _, body, _ in server.asked} - {"Größe 3"}
    assert {"Größe 0", "Größe 1", "Größe 2"} <= kept
    server.reply = Server.chat
    server.asked.clear()
    second = make(server, monkeypatch, cache=str(tmp_path))
    found = second.generate(requests(6), Sampling())
    asked = {body["messages"][0]["content"] for _, body, _ in server.asked}
    assert asked == {f"Größe {i}" for i in range(6)} - kept
    assert second.counters.extra["remembered"] == 2 * len(kept)
    assert second.counters.prompt_tokens == 10 * len(asked)  # only what was asked for costs
    server.asked.clear()
    again = make(server, monkeypatch, cache=str(tmp_path)).generate(requests(6), Sampling())
    assert not server.asked
    assert [[(a.ids, a.text) for a in actions] for actions in again] == [[(a.ids, a.text) for a in s] for s in found]
    third = make(server, monkeypatch, cache=str(tmp_path))
    third.generate(requests(1), Sampling(0.5))  # another distribution is another action
    third.generate(requests(1, n=3), Sampling())  # two are known, one is not
    assert [body["n"] for _, body, _ in server.asked] == [2, 1]
    assert KEY not in (tmp_path / "actions.jsonl").read_text()


def test_altered_actions_are_not_believed(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make(server, monkeypatch, cache=str(tmp_path)).generate(requests(1), Sampling())
    path = tmp_path / "actions.jsonl"
    path.write_text(path.read_text().replace("heard", "HEARD", 1))
    server.asked.clear()
    found = make(server, monkeypatch, cache=str(tmp_path)).generate(requests(1), Sampling())[0]
    assert len(server.asked) == 1 and all("heard" in a.text for a in found)


def test_plain_completions_and_refusals_without_text(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.reply = lambda body: {
        "choices": [{"index": 0, "text": body["prompt"] + "!", "finish_reason": "length"}] * body["n"]
    }
    engine = make(server, monkeypatch, api="completions")
    action = engine.generate(requests(1), Sampling())[0][0]
    assert (action.text, action.finish, server.asked[0][0]) == ("Größe 0!", "length", "/v1/completions")
    server.reply = lambda body: {
        "choices": [{"index": i, "message": {"content": None}, "finish_reason": "stop"} for i in range(body["n"])]
    }
    assert [a.text for a in make(server, monkeypatch).generate(requests(1), Sampling())[0]] == ["", ""]


def test_token_ids_both_ways(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """As vLLM's server speaks; here it runs past the end token, which is not believed."""
    team = policy("qwen3")
    ids = [*team.encode("Hi"), END, 33, 33]

    def reply(body: dict[str, Any]) -> dict[str, Any]:
        assert body["prompt"] == [1, 2, 3] and body["stop_token_ids"] == [END] and body["return_token_ids"]
        choice = {"token_ids": ids, "logprobs": {"token_logprobs": [-0.5] * 5}, "finish_reason": "length"}
        return {"choices": [{"index": i, **choice} for i in range(body["n"])]}

    server.reply = reply
    engine = make(server, monkeypatch, api="tokens", models=("local",))
    engine.load({"team": team})
    action = engine.generate([Request("team", (1, 2, 3), 2, 5)], Sampling())[0][0]
    assert (action.ids, action.logprobs, action.text, action.finish) == (tuple(ids[:3]), (-0.5,) * 3, "Hi", "stop")


def test_what_cannot_be_served_is_said(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make(server, monkeypatch)
    with pytest.raises(EngineError, match="cannot train"):
        engine.update(policy("qwen3"))
    with pytest.raises(EngineError, match=r"'nobody' is not loaded \(loaded: \['helper', 'main'\]\)"):
        engine.generate([Request("nobody", (1,), 1, 0)], Sampling())
    templated = policy("qwen3")
    templated.chat = True
    with pytest.raises(EngineError, match=r"set policy\.chat to never"):
        engine.load({"team": templated})
    with pytest.raises(EngineError, match="2 models for 3 policies"):
        engine.load({name: policy("qwen3", name=name) for name in "abc"})
    monkeypatch.delenv("TEAM_KEY")
    with pytest.raises(EngineError, match="environment variable TEAM_KEY is not set"):
        OpenAIEngine(OpenAIServer("http://127.0.0.1:9/v1", ("m",), key_variable="TEAM_KEY"))


def test_answers_that_other_code_read_are_asked_for_again(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make(server, monkeypatch, cache=str(tmp_path)).generate(requests(2), Sampling())
    same = make(server, monkeypatch, cache=str(tmp_path))
    same.generate(requests(2), Sampling())
    assert same.counters.extra["asked"] == 0
    monkeypatch.setattr(openai_engine, "code_of", lambda name: Code({name: "another"}, {}))
    other = make(server, monkeypatch, cache=str(tmp_path))
    other.generate(requests(2), Sampling())
    assert other.counters.extra["asked"] == 4, "two actions a request"
