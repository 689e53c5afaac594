"""A team of adapters over HTTP, sampled by real vLLM and asked by the standard client."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import psutil
import pytest

from pipeline_lib.play import Player
from pipeline_lib.policies.policy import Team
from pipeline_lib.rollouts import Sampling
from pipeline_lib.rollouts.make import make_engine
from tasks.use.api_requests import Limits
from tasks.use.endpoint import make_app
from tasks.use.queueing import BatchQueue
from tests.needs import needs
from tests.rollouts.test_vllm_engine import adapted, section, vllm_policy
from tests.served import served
from tests.training.conftest import Agree, Toy

pytestmark = [pytest.mark.service, pytest.mark.timeout(1500), needs("vLLM")]

AGENTS = ("one", "two")


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    def make() -> Player:
        base = vllm_policy()
        team = Team({name: adapted(base, name, seed) for seed, name in enumerate(AGENTS)}, {a: a for a in AGENTS})
        engine = make_engine(section())
        engine.load(team.policies)
        return Player(Agree(), team, engine, Sampling(max_new_tokens=8))

    batch_queue = BatchQueue(make, most_waiting=32)
    player = batch_queue.open()
    app = make_app(player, AGENTS, batch_queue, lambda text: Toy("typed", text), Limits(max_tokens=8))
    with served(app) as port:
        yield openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)
    batch_queue.close()


def test_agents_and_team_answer_whole_streamed_and_many_at_once(client: openai.OpenAI) -> None:
    def ask(model: str, text: str, seed: int, **more: Any) -> Any:
        return client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": text}], seed=seed, **more
        )

    def streamed(model: str, text: str, seed: int, **more: Any) -> list[str]:
        pieces = [""] * more.get("n", 1)
        for chunk in ask(model, text, seed, stream=True, **more):
            for choice in chunk.choices:
                pieces[choice.index] += choice.delta.content or ""
        return pieces

    assert [model.id for model in client.models.list()] == ["team", *AGENTS]
    whole = {agent: [choice.message.content for choice in ask(agent, "pick", 3, n=3).choices] for agent in AGENTS}
    assert len({*whole["one"], *whole["two"]}) == 6, "each agent has an adapter of its own"
    assert {agent: streamed(agent, "pick", 3, n=3) for agent in AGENTS} == whole
    answer = ask("team", "red", 5)
    assert 2 <= answer.usage.completion_tokens <= 16 and answer.choices[0].message.content
    assert streamed("team", "red", 5) == [answer.choices[0].message.content]

    def numbered(number: int) -> str:
        return str(ask(("team", *AGENTS)[number % 3], "blue", number).choices[0].message.content)

    with ThreadPoolExecutor(9) as pool:
        together = list(pool.map(numbered, range(9)))
    assert together == [numbered(number) for number in range(9)]


def test_when_vllm_has_ended_a_client_is_told_in_a_line(client: openai.OpenAI) -> None:
    (worker,) = (child for child in psutil.Process().children() if "vllm_worker.py" in " ".join(child.cmdline()))
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(openai.InternalServerError) as caught:
        client.completions.create(model="one", prompt="pick")
    said = caught.value.body
    assert isinstance(said, dict) and said["message"] == (
        "the engine failed: the vLLM process ended during generate (status -9) (see the server's log)"
    )
