"""A team over HTTP, asked by the standard client."""

import http.client
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion

from pipeline_lib.play import Player
from pipeline_lib.play.roots import PairedChance, Root
from pipeline_lib.rollouts.engine import EngineError, Request
from pipeline_lib.rollouts.transformers_engine import TransformersEngine
from tasks.use.api_requests import ChatRequest, Limits, RequestReader
from tasks.use.endpoint import make_app
from tasks.use.local_server import RefusedError
from tasks.use.queueing import Answer, BatchQueue, FullError, Question
from tests.served import served as serving
from tests.training.conftest import SAMPLING, Agree, Toy, make_team

KEY = "a key for this test"


def toy(text: str) -> Toy:
    if text not in ("red", "green", "blue"):
        raise ValueError(f"{text!r} is no colour")
    return Toy("typed", text)


def make_player(turns: int = 1) -> Player:
    team = make_team(("one", "two"))
    engine = TransformersEngine(rows=32)
    engine.load(team.policies)
    return Player(Agree(turns=turns), team, engine, replace(SAMPLING, max_new_tokens=4))


@dataclass
class Served:
    port: int
    batch_queue: BatchQueue
    client: openai.OpenAI = field(init=False)

    def __post_init__(self) -> None:
        self.client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key=KEY, max_retries=0)

    def send(self, body: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
        """Send bytes as they are, and return status and body of the reply."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        usual = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("POST", "/v1/chat/completions", body, usual | named)
        reply = connection.getresponse()
        content = reply.read()
        return reply.status, json.loads(content) if content.startswith(b"{") else {}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    batch_queue = BatchQueue(lambda: make_player(turns=2), most_waiting=64)
    player = batch_queue.open()
    app = make_app(player, ("one", "two"), batch_queue, toy, Limits(max_tokens=8, body_kb=4, answers=3), KEY)
    with serving(app) as port:
        yield Served(port, batch_queue)
    batch_queue.close()


def chat(served: Served, model: str, text: str, **options: Any) -> Any:
    return served.client.chat.completions.create(model=model, messages=[{"role": "user", "content": text}], **options)


def test_the_models_are_the_team_and_its_agents(served: Served):
    assert [model.id for model in served.client.models.list()] == ["team", "one", "two"]


def test_an_agent_answers_as_its_policy_does_streamed_or_whole(served: Served):
    own = make_player()
    prompt = own.team.policy_of("two").encode("pick red right")
    expected = own.engine.generate([Request("two", prompt, 3, 11)], own.sampling)[0]
    found = chat(served, "two", "pick red right", seed=11, n=3)
    assert [choice.message.content for choice in found.choices] == [action.text for action in expected]
    assert [choice.finish_reason for choice in found.choices] == [action.finish for action in expected]
    assert found.usage.prompt_tokens == len(prompt)
    assert found.usage.completion_tokens == sum(len(action.ids) for action in expected)
    pieces: list[list[str]] = [[], [], []]
    usage = None
    for chunk in chat(
        served, "two", "pick red right", seed=11, n=3, stream=True, stream_options={"include_usage": True}
    ):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            if choice.delta.content:
                pieces[choice.index].append(choice.delta.content)
    assert ["".join(own) for own in pieces] == [action.text for action in expected]
    assert any(len(own) > 1 for own in pieces), "token by token"
    assert usage == found.usage
    text = served.client.completions.create(model="two", prompt="pick red right", seed=11, n=3)
    assert [choice.text for choice in text.choices] == [action.text for action in expected]
    streamed = served.client.completions.create(model="two", prompt="pick red right", seed=11, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == expected[0].text


def test_the_team_plays_its_protocol_and_answers_with_the_joint_result(served: Served):
    own = make_player(turns=2)
    episode = own.play([Root(toy("blue"), 1, PairedChance(5, "typed", 0))]).episodes()[0]
    found = chat(served, "team", "blue", seed=5)
    said = [action.text.strip() for action in episode[-1].actions]
    assert len(episode) == 2 and found.choices[0].message.content == "\n\n".join(text for text in said if text)
    assert found.usage.completion_tokens == sum(len(a.ids) for decision in episode for a in decision.actions)
    chunks = [chunk.choices[0] for chunk in chat(served, "team", "blue", seed=5, stream=True)]
    assert "".join(choice.delta.content or "" for choice in chunks) == found.choices[0].message.content
    assert chunks[-1].finish_reason == found.choices[0].finish_reason
    assert (
        chat(served, "team", "blue", seed=6, temperature=0).choices
        == chat(served, "team", "blue", seed=7, temperature=0).choices
    )


def test_what_cannot_be_answered_is_refused_with_a_reason(served: Served):
    def refused(call: Callable[[], Any], status: int, words: str) -> None:
        with pytest.raises(openai.APIStatusError) as caught:
            call()
        assert caught.value.status_code == status and words in caught.value.message, caught.value.message

    refused(lambda: chat(served, "three", "pick"), 404, "there are team, one, two")
    refused(lambda: chat(served, "team", "pink"), 400, "'pink' is no colour")
    refused(lambda: chat(served, "team", "red", n=2), 400, "one answer a request")
    refused(lambda: chat(served, "one", "pick", n=4), 400, "n is 4, the limit 3")
    refused(lambda: chat(served, "one", "pick", presence_penalty=0.5), 400, "presence_penalty")
    refused(lambda: chat(served, "one", "pick", logprobs=True), 400, "logprobs")
    refused(lambda: chat(served, "one", "pick", tools=[{"type": "function", "function": {"name": "f"}}]), 400, "tools")
    refused(lambda: chat(served, "one", "pick", extra_body={"colour": 1}), 400, "colour: this API does not know it")
    refused(lambda: chat(served, "one", "pick", stop=[""]), 400, "stop")
    refused(lambda: served.client.models.retrieve("three"), 404, "there are team, one, two")
    refused(lambda: chat(served, "one", "pick", temperature=-1), 400, "temperature")
    for body, words in (
        (b'{"model": "one", }', "the body is not JSON (Expecting property name enclosed in double quotes, at char"),
        (
            b'{"model": "one", "messages": [], "temperature": NaN}',
            "less than or equal to 2, got nan",
        ),
    ):
        status, found = served.send(body)
        assert status == 400 and words in found["error"]["message"], found
    refused(lambda: chat(served, "one", "pick " * 64), 400, "the prompt has 64 tokens; 64 hold prompt and answer")
    refused(lambda: chat(served, "one", ""), 400, "the prompt has 0 tokens")
    refused(lambda: served.client.completions.create(model="team", prompt="red"), 400, "chat/completions only")
    turns: Any = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "pick"}]
    create = served.client.chat.completions.create
    refused(lambda: create(model="one", messages=turns), 400, "one user message")
    refused(lambda: create(model="team", messages=turns), 400, "one user message")
    stranger = openai.OpenAI(base_url=served.client.base_url, api_key="another key", max_retries=0)
    refused(stranger.models.list, 401, "the key is missing or wrong")


def test_what_clients_send_by_default_is_taken(served: Served):
    assert [served.client.models.retrieve(name).id for name in ("team", "two")] == ["team", "two"]
    usual = {
        "user": "u", "presence_penalty": 0, "frequency_penalty": 0.0, "logprobs": False, "stop": None, "store": False,
        "tools": [], "response_format": {"type": "text"}, "logit_bias": {}, "metadata": {}, "seed": 3,
    }  # fmt: skip
    parts: Any = [{"type": "text", "text": "pick red"}, {"type": "text", "text": " right"}]
    for model, whole, content in (
        ("one", "pick red right", parts),
        ("team", "blue", [{"type": "text", "text": "blue"}]),
    ):
        plain = chat(served, model, whole, seed=3)
        full = served.client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": content, "name": "me"}], **usual
        )
        assert full.choices == plain.choices
    plain = served.client.completions.create(model="one", prompt="pick red right", seed=3)
    full = served.client.completions.create(
        model="one", prompt=["pick red right"], seed=3, best_of=1, echo=False, suffix="", user="u"
    )
    assert full.choices == plain.choices


def test_null_asks_for_nothing(served: Served):
    """As clients send it that send every field they know, and a reply of theirs as the next message."""
    unset = dict.fromkeys(
        ("n", "stream", "stream_options", "temperature", "top_p", "max_tokens", "max_completion_tokens", "logit_bias",
         "reasoning_effort", "tools", "tool_choice", "functions", "audio", "metadata", "modalities")
    )  # fmt: skip
    plain = chat(served, "one", "pick red right", seed=3)
    message = {"role": "user", "content": "pick red right", "name": None, "tool_calls": None, "refusal": None}
    body = {"model": "one", "messages": [message], "seed": 3, **unset}
    assert served.client.post("/chat/completions", body=body, cast_to=ChatCompletion).choices == plain.choices
    again: Any = {**plain.choices[0].message.model_dump(), "role": "user", "content": "pick red right"}
    assert served.client.chat.completions.create(model="one", messages=[again], seed=3).choices == plain.choices


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_ends_before_a_stop_text(served: Served, stream: bool):
    whole = chat(served, "one", "pick red right", seed=11, max_tokens=8).choices[0].message.content
    assert len(whole) > 2
    stop = whole[len(whole) // 2]
    for stops in (stop, ["no such text", stop]):
        found = chat(served, "one", "pick red right", seed=11, max_tokens=8, stop=stops, stream=stream)
        choices = [chunk.choices[0] for chunk in found] if stream else [found.choices[0]]
        said = "".join((c.delta.content or "") if stream else c.message.content for c in choices)
        assert said == whole[: whole.index(stop)]
        assert choices[-1].finish_reason == "stop"


@pytest.mark.parametrize("stream", [False, True])
def test_more_tokens_than_the_limit_are_cut_and_the_reply_says_so(served: Served, stream: bool):
    found = chat(served, "one", "pick red right", seed=2, max_tokens=4096, stream=stream)
    replies = list(found) if stream else [found]
    assert replies[-1].model_extra["notices"] == [
        "max_tokens was 4096 and is 8 here, the limit of an answer (symposium serve --max-tokens)"
    ]
    assert chat(served, "one", "pick red right", max_tokens=8).model_extra == {}


def test_a_requested_temperature_is_that_of_agents_with_their_own_too():
    own = make_player()
    own = replace(own, sampling=replace(own.sampling, temperatures=(("two", 0.5),)))
    reader = RequestReader(own, ("one", "two"), toy, Limits(max_tokens=8))
    found = [
        reader.chat(ChatRequest(model=agent, messages=[{"role": "user", "content": "pick red right"}], **more))
        for agent in ("one", "two")
        for more in ({}, {"temperature": 0.9})
    ]
    used = [question.sampling.of(question.agent).temperature for question in found]
    assert used == [own.sampling.temperature, 0.9, 0.5, 0.9]


def test_white_space_that_no_reader_of_a_prompt_sees_need_not_be_sent():
    player = make_player()
    reader = RequestReader(player, ("one", "two"), toy, Limits(max_tokens=8), {"one": " left"})

    def prompt(model: str, text: str) -> tuple[int, ...]:
        return reader.chat(ChatRequest(model=model, messages=[{"role": "user", "content": text}])).prompt

    encode = player.team.policy_of("one").encode
    assert prompt("one", "pick red") == prompt("one", "pick red left") == encode("pick red left")
    assert prompt("two", "pick red") == encode("pick red") != encode("pick red left")


def test_messages_that_a_chat_template_refuses_are_refused_with_its_reason():
    player = make_player()
    policy = player.team.policy_of("one")
    policy.chat = True
    policy.tokenizer.chat_template = (
        "{% if messages[0].role != 'user' %}{{ raise_exception('no system message') }}{% endif %}"
        "{{ strftime_now('%Y') }} {{ messages[0].content }}"
    )
    reader = RequestReader(player, ("one", "two"), toy, Limits(max_tokens=8))
    asked = {"role": "user", "content": "pick red"}
    prompt = reader.chat(ChatRequest(model="one", messages=[asked])).prompt
    assert prompt == policy.encode("pick red") == tuple(policy.tokenizer("2024 pick red")["input_ids"])
    with pytest.raises(RefusedError, match="the chat template of one refuses these messages: no system message"):
        reader.chat(ChatRequest(model="one", messages=[{"role": "system", "content": "Be brief."}, asked]))


def test_half_a_character_is_refused(served: Served):
    status, said = served.send(b'{"model": "one", "messages": [{"role": "user", "content": "\\ud800"}]}')
    assert status == 400 and "surrogates" in said["error"]["message"]


def test_bodies_hosts_and_types_are_checked(served: Served):
    assert served.send(b"x" * 5000)[0] == 413
    assert served.send(b"{}", Content_Type="text/plain")[0] == 415
    assert served.send(b"{", Content_Length="1")[0] == 400
    assert served.send(b"{}", Host="evil.example")[0] == 400
    assert served.send(b"{}", Origin="http://evil.example")[0] == 403
    assert served.send(b"{}", Origin=f"http://127.0.0.1:{served.port}")[0] == 400, "its own pages may ask"
    status, body = served.send(json.dumps({"model": "one", "messages": []}).encode())
    assert status == 400 and body["error"]["param"] == "messages"


def test_many_clients_are_answered_as_if_each_were_alone(served: Served):
    colours = ["red", "green", "blue"]

    def ask(number: int) -> Any:
        model = ("team", "one", "two")[number % 3]
        text = colours[number % 2] if model == "team" else f"pick {colours[number % 2]} left"
        return chat(served, model, text, seed=number).choices[0].message.content

    with ThreadPoolExecutor(12) as pool:
        together = list(pool.map(ask, range(24)))
    assert together == [ask(number) for number in range(24)]


class Gate:
    """An engine that waits before its first call, as one that is busy would, and fails where it is told to."""

    def __init__(self, player: Player) -> None:
        self._engine = player.engine
        self.open = threading.Event()
        self.entered = threading.Event()
        self.listener: Any = None

    def generate(self, requests: Any, sampling: Any) -> Any:
        self.entered.set()
        assert self.open.wait(60)
        if any(request.seed == 13 for request in requests):
            raise EngineError("thirteen")
        self._engine.listener = self.listener
        return self._engine.generate(requests, sampling)

    def close(self) -> None:
        return None


def test_ctrl_c_while_a_team_is_loaded_waits_for_what_loads_it():
    loaded = threading.Event()

    def make() -> Player:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)
        loaded.set()
        return make_player()

    with pytest.raises(KeyboardInterrupt):
        BatchQueue(make, most_waiting=1).open()
    assert loaded.is_set()


def test_what_waits_is_drawn_together_a_failure_spoils_no_other_and_too_many_are_turned_away():
    player = make_player()
    gate: Any = Gate(player)
    batch_queue = BatchQueue(lambda: replace(player, engine=gate), most_waiting=4)
    batch_queue.open()
    found: dict[int, Answer | BaseException] = {}
    prompt = player.team.policy_of("one").encode("pick red left")

    def question(seed: int) -> Question:
        return Question(player.sampling, seed, lambda answer: found.__setitem__(seed, answer), "one", prompt)

    batch_queue.ask(question(1))
    assert gate.entered.wait(60)
    gone = question(5)
    for asked in (question(2), question(13), question(3), gone):
        batch_queue.ask(asked)
    with pytest.raises(FullError, match="4 requests wait already"):
        batch_queue.ask(question(6))
    gone.gone = True
    gate.open.set()
    batch_queue.close()
    assert batch_queue.batches == [1, 3, 1, 1, 1], "the three that wait at once; then one by one, since one failed"
    assert set(found) == {1, 2, 3, 13}
    assert str(found[13]) == "thirteen" and all(isinstance(found[seed], Answer) for seed in (1, 2, 3))
