"""A judge on a real local server: its marks count, are asked for once, and are missed rather than made up."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pipeline_lib.environment_kit.served_model import AMOUNTS
from pipeline_lib.environments.writing.runtime import WritingEnvironment
from pipeline_lib.environments.writing.settings import JudgeModel, SoundWritingReward
from pipeline_lib.environments.writing.settings import WritingSettings as Settings
from tests.environments.writing.help import SOUND, problems, work
from tests.http_server import HttpServer, Reply

PROBLEMS = problems("summary")[:4]


class Server(HttpServer):
    """Marks by how many sentences a question has, or says what it was told to say, a status and a text each."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        self.says: list[tuple[int, str]] = []
        self.broken_for = ""
        self._lock = threading.Lock()
        super().__init__()

    def post(self, path: str, body: dict[str, Any], authorisation: str) -> Reply:
        text = body["messages"][0]["content"]
        with self._lock:
            self.asked.append(body)
            self.keys.add(authorisation)
            status, said = self.says.pop(0) if self.says else (200, self.mark(text))
        if self.broken_for and self.broken_for in text:
            status = 400
        usage = {"prompt_tokens": 100, "completion_tokens": 2}
        return Reply.json({"choices": [{"message": {"content": said}}], "usage": usage}, status)

    @staticmethod
    def mark(text: str) -> str:
        written = text.split("First text:")[1].split("How faithfully")[0]
        return f"{min(10, written.count('.'))}"


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()


def environment(server: Server, **options: Any) -> WritingEnvironment:
    judge = JudgeModel(url=f"{server.url}/v1", model="judge", **{"weight": 0.5, "retries": 0, **options})
    return WritingEnvironment(Settings(reward=SoundWritingReward(judge=judge)))


def step(environment: WritingEnvironment, texts: list[tuple[str, ...]]) -> list[Any]:
    states = [environment.start(problem) for problem, _ in zip(PROBLEMS, texts, strict=False)]
    return environment.step(states, texts)


def spent(outcome: Any) -> dict[str, float]:
    return {name: amount for name, amount in outcome.details["costs"].items() if amount}


def test_a_mark_is_a_term_of_its_own_and_shrinks_with_faults(server: Server) -> None:
    judged = environment(server)
    assert judged.reward_bounds[1] == pytest.approx(SOUND.bounds[1] + 0.5)
    true = PROBLEMS[0].reference
    false = ("Blark blemp bland. " + true[0], true[1])
    outcomes = judged.step([judged.start(PROBLEMS[0])] * 2, [true, false])
    assert outcomes[0].terms["judge"] == pytest.approx(0.5 * 6 / 10), "six sentences"
    assert outcomes[1].terms["judge"] == pytest.approx(0.5 * 7 / 10 * (1 - 1 / 6)), "seven, one of which is no fact"
    for outcome, texts in zip(outcomes, (true, false), strict=True):
        sound = SOUND.terms(work(PROBLEMS[0], *texts))
        assert {name: value for name, value in outcome.terms.items() if name != "judge"} == pytest.approx(sound)
        assert outcome.reward == pytest.approx(sum(outcome.terms.values()))
    judged.close()


def test_every_question_is_asked_once_and_shows_source_and_texts(server: Server, tmp_path: Path) -> None:
    first = environment(server, cache=str(tmp_path))
    texts = [problem.reference for problem in PROBLEMS]
    rewards = [outcome.reward for outcome in step(first, texts)]
    assert [outcome.reward for outcome in step(first, texts)] == rewards
    assert len(server.asked) == len(PROBLEMS)
    for problem in PROBLEMS:
        said = [body for body in server.asked if problem.text in body["messages"][0]["content"]]
        assert len(said) == 1 and all(text in said[0]["messages"][0]["content"] for text in problem.reference)
        assert said[0]["temperature"] == 0 and said[0]["model"] == "judge"
    with (tmp_path / "answers.jsonl").open("a") as file:
        file.write('{"key": "cut o')
    assert [outcome.reward for outcome in step(environment(server, cache=str(tmp_path)), texts)] == rewards
    assert len(server.asked) == len(PROBLEMS), "marks that are kept are not asked for again"
    step(environment(server, cache=str(tmp_path)), [("Something.", "else.")])
    step(environment(server, cache=str(tmp_path)), [("Something.", "else.")])
    assert len(server.asked) == len(PROBLEMS) + 1, "what follows a line that was cut off is read"


def test_what_a_mark_costs_is_counted_once_also_where_it_fails(server: Server) -> None:
    judged = environment(server, retries=1)
    paid = {"judge_requests": 1.0, "judge_prompt_tokens": 100.0, "judge_completion_tokens": 2.0}
    once = judged.step([judged.start(PROBLEMS[0])] * 2, [PROBLEMS[0].reference] * 2)
    assert [spent(outcome) for outcome in once] == [paid, {"judge_remembered": 1.0}]
    server.says = [(200, "no mark"), (200, "7")]
    (again,) = judged.step([judged.start(PROBLEMS[1])], [PROBLEMS[1].reference])
    assert spent(again) == {name: 2 * amount for name, amount in paid.items()}, "both answers are paid for"
    server.says = [(200, "no mark"), (200, "none")]
    (lost,) = judged.step([judged.start(PROBLEMS[0])], [("Other.", "texts.")])
    assert lost.reward is None
    assert spent(lost) == {**{name: 2 * amount for name, amount in paid.items()}, "judge_failed": 1.0}
    names = {f"judge_{amount}" for amount in AMOUNTS}
    assert all(set(outcome.details["costs"]) == names for outcome in (*once, again, lost)), "means count zeros too"
    assert (
        "costs"
        not in WritingEnvironment(Settings()).step([judged.start(PROBLEMS[0])], [PROBLEMS[0].reference])[0].details
    )


def test_texts_without_a_mark_get_no_reward_and_others_theirs(server: Server) -> None:
    server.broken_for = PROBLEMS[1].text
    outcomes = step(environment(server), [problem.reference for problem in PROBLEMS])
    assert [outcome.reward is None for outcome in outcomes] == [False, True, False, False]
    assert outcomes[1].done and outcomes[1].details["error"]
    server.broken_for = ""
    assert step(environment(server), [problem.reference for problem in PROBLEMS])[1].reward is not None


@pytest.mark.parametrize(
    ("said", "mark"), [("7", 0.7), ("Mark: 10", 1.0), (" 0 ", 0.0), ("11", None), ("7 or 8", None), ("good", None)]
)
def test_only_one_number_from_0_to_10_is_a_mark(server: Server, said: str, mark: float | None) -> None:
    server.says = [(200, said)]
    (outcome,) = step(environment(server), [PROBLEMS[0].reference])
    assert (outcome.reward is None) == (mark is None)
    if mark is not None:
        assert outcome.terms["judge"] == pytest.approx(0.5 * mark)


def test_a_busy_server_is_asked_again_with_the_key(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_JUDGE", "secret")
    server.says = [(503, "")]
    judged = environment(server, key_variable="OF_THE_JUDGE", retries=1)
    assert step(judged, [PROBLEMS[0].reference])[0].reward is not None
    assert len(server.asked) == 2 and server.keys == {"Bearer secret"}
    monkeypatch.delenv("OF_THE_JUDGE")
    with pytest.raises(ValueError, match="OF_THE_JUDGE is not set"):
        environment(server, key_variable="OF_THE_JUDGE")


def test_a_judge_needs_a_server_and_a_name() -> None:
    with pytest.raises(ValidationError, match="url"):
        JudgeModel(url="", model="judge")
    with pytest.raises(ValidationError, match="model"):
        JudgeModel.model_validate({"url": "http://127.0.0.1:1/v1"})
