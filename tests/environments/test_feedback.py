"""Sources of feedback: what each tells an agent, and that none tells it a hidden test or another agent's text."""

import ast
import json
import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pipeline_lib.environment_kit.served_model import AMOUNTS
from pipeline_lib.environments.coding.feedback import MAX_CODE, MAX_EDITS, MAX_FINDINGS
from pipeline_lib.environments.coding.problem import CodingProblem
from pipeline_lib.environments.coding.runtime import CodingEnvironment
from pipeline_lib.environments.coding.settings import CodingSettings as Settings
from pipeline_lib.environments.coding.settings import Expert
from pipeline_lib.sandbox import Case, Executor, Job, Limits, Status, Verdict
from pipeline_lib.settings import Params
from tests.http_server import HttpServer, Reply

PROBLEM = CodingProblem(
    id="even/double",
    source="test",
    family="even",
    level=1,
    entry_point="main",
    observations={"helper": "aux: even items\n", "main": "main: twice the chosen\n", "single": "both\n"},
    prelude="import math\ndef given(x):\n    return x\n",
    visible_tests="def check(candidate):\n    assert candidate([1, 2, 3]) == 4\n",
    hidden_tests="def check(candidate):\n    assert candidate([81, 92]) == 184\n",
    reference={},
)
AUX = "def aux(helpers_name):\n    return helpers_name"
MAIN = "def main(mains_name):\n    return sum(aux(mains_name))"
HIDDEN = ("184", "81", "92")


class Failing:
    """A sandbox in which every program fails every test, with the message that a judge would write."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def run(self, jobs: Sequence[Job]) -> list[Verdict]:
        self.jobs += jobs
        case = Case(0, "fail", "got 6, expected 4", "assert candidate([1, 2, 3]) == 4")
        hidden = Case(0, "fail", "got 81, expected 184", "assert candidate([81, 92]) == 184")
        return [
            Verdict(job.id, Status.FAILED, 0, 1, (hidden if job.tests == PROBLEM.hidden_tests else case,))
            for job in jobs
        ]

    def close(self) -> None:
        return


def step(environment: CodingEnvironment, *joint_actions: tuple[str, ...], problem: CodingProblem = PROBLEM) -> Any:
    return environment.step([environment.start(problem)] * len(joint_actions), joint_actions)


def test_the_default_shows_what_it_always_showed() -> None:
    environment = CodingEnvironment(Settings(turns=2), Failing)
    (outcome,) = step(environment, (AUX, f"\n{MAIN}\n"))
    assert environment.observe(outcome.state, 1) == (
        "main: twice the chosen\n\nYour code:\ndef main(mains_name):\n    return sum(aux(mains_name))\n\n"
        "- tests passed: 0 of 1\n- assert candidate([1, 2, 3]) == 4: got 6, expected 4\nWrite it again, improved:\n"
    )
    assert "costs" not in outcome.details
    plain = CodingEnvironment(Settings(turns=2, feedback=()), Failing)
    (outcome,) = step(plain, (AUX, MAIN))
    assert plain.observe(outcome.state, 0) == (f"aux: even items\n\nYour code:\n{AUX}\n\nWrite it again, improved:\n")


@pytest.fixture(scope="module")
def environment() -> Iterator[CodingEnvironment]:
    limits = Limits(cpu_s=2.0, call_cpu_s=1.0)
    with Executor(slots=1, limits=limits, packages=("numpy", "pyflakes")) as executor:
        yield CodingEnvironment(Settings(turns=2, feedback=("static_analysis",)), lambda: executor)


class TestHistory:
    def after(self, turns: int, **settings: Any) -> tuple[CodingEnvironment, Any]:
        environment = CodingEnvironment(Settings(turns=8, **settings), Failing)
        state = environment.start(PROBLEM)
        for turn in range(turns):
            actions = (AUX.replace("aux", f"aux_{turn}"), MAIN.replace("main(", f"main_{turn}("))
            state = environment.step([state], [actions])[0].state
        return environment, state

    def test_all_turns_are_shown_the_oldest_first(self) -> None:
        environment, state = self.after(3, history="all", feedback=())
        own = "".join(f"\nYour code:\n{AUX.replace('aux', f'aux_{turn}')}\n" for turn in range(3))
        assert environment.observe(state, 0) == f"aux: even items\n{own}\nWrite it again, improved:\n"
        with_notes, state = self.after(2, history="all")
        sources = [part.source for part in with_notes.parts(state, 1)]
        assert sources == ["task", "own code", "tests", "own code", "tests", ""]
        assert "aux_0" not in with_notes.observe(state, 1)

    def test_the_oldest_turns_can_be_cut_but_not_the_last(self) -> None:
        environment, state = self.after(3, history="all")
        last, last_state = self.after(3)
        assert environment.shortened(state, 1, 0) == environment.observe(state, 1)
        assert environment.shortened(state, 1, 2) == last.observe(last_state, 1)
        assert environment.shortened(state, 1, 3) is None
        assert last.shortened(last_state, 1, 1) is None

    def test_after_one_turn_all_is_the_last(self) -> None:
        (everything, state), (last, same) = self.after(1, history="all"), self.after(1)
        assert everything.observe(state, 0) == last.observe(same, 0)


class TestStaticAnalysis:
    def notes(self, environment: CodingEnvironment, *joint_actions: tuple[str, str]) -> list[list[list[str]]]:
        outcomes = step(environment, *joint_actions)
        assert all(outcome.reward is not None for outcome in outcomes)
        return [[[note.text for note in own] for own in outcome.state.turns[-1].notes] for outcome in outcomes]

    def test_each_agent_is_told_of_its_own_part(self, environment: CodingEnvironment) -> None:
        helper = "import os\ndef aux(xs):\n    left = 1\n    return [x for x in xs if x % k]"
        main = "from __future__ import annotations\ndef main(xs):\n    return given(math.floor(summ(aux(xs))))"
        ((first, second),) = self.notes(environment, (helper, main))
        assert first == [
            "'os' imported but unused: import os",
            "local variable 'left' is assigned to but never used: left = 1",
            "undefined name 'k': return [x for x in xs if x % k]",
        ]
        assert second == ["undefined name 'summ': return given(math.floor(summ(aux(xs))))"]
        assert self.notes(environment, (AUX, MAIN)) == [[[], []]]

    def test_nothing_of_another_agents_text_or_of_a_hidden_test_is_told(self, environment: CodingEnvironment) -> None:
        """Programs that try to carry names, strings and lines of one agent into what the other is told."""
        star = "from secret_of_helper import *\ndef aux(secret_of_helper):\n    return undefined_of_helper"
        twice = f"secret_of_helper = 1\n{star}\ndef common():\n    return 1\n__all__ = ['secret_of_helper']"
        mains = (
            "def main(xs):\n    return unknown(aux(xs))",
            "from os import *\ndef common():\n    return 2\ndef main(xs):\n    return unknown(aux(xs), common())",
            "def main(xs):\n    import unused\n    return aux(xs)",
        )
        shouts = "def aux(xs):\n    raise ValueError(open('/proc/self/mem', str([81, 92]))\n"
        for own in self.notes(environment, *((helper, main) for helper in (star, twice, shouts) for main in mains)):
            assert own[1] or own[0]
            assert not any("_of_helper" in note or "line" in note for note in own[1]), own[1]
            assert not any(name in note for note in own[0] for name in ("unknown", "unused", "main"))
            assert not any(text in note for notes in own for note in notes for text in HIDDEN[:1])

    def test_many_findings_and_bad_programs_are_a_few_lines(self, environment: CodingEnvironment) -> None:
        many = "def aux(xs):\n    return [" + ", ".join(f"u{i}" for i in range(99)) + "]"
        deep = "def main(xs):\n    return " + "-" * 3000 + "1"
        broken = "def aux(xs:\n    return 1"
        (first, _), (second, _), (_, third) = self.notes(environment, (many, MAIN), (broken, MAIN), (AUX, deep))
        assert len(first) == MAX_FINDINGS and all(len(note) <= 100 for note in first)
        assert second == ["your code does not parse: line 1, column 8: '(' was never closed"]
        assert len(third) <= 1

    def test_a_line_is_not_said_twice(self) -> None:
        environment = CodingEnvironment(Settings(turns=2, feedback=("tests", "static_analysis")), Failing)
        (outcome,) = step(environment, ("def aux(xs:", MAIN))
        assert sum("does not parse" in note.text for note in outcome.state.turns[-1].notes[0]) == 1

    def test_a_sandbox_without_pyflakes_is_a_failure_and_not_a_clean_program(self) -> None:
        class Without(Failing):
            def run(self, jobs: Sequence[Job]) -> list[Verdict]:
                return [
                    replace(verdict, status=Status.LOAD_ERROR, error="ModuleNotFoundError: No module named 'pyflakes'")
                    if "pyflakes" in job.code
                    else verdict
                    for job, verdict in zip(jobs, super().run(jobs), strict=True)
                ]

        environment = CodingEnvironment(Settings(turns=2, feedback=("static_analysis",)), Without)
        (outcome,) = step(environment, (AUX, MAIN))
        assert outcome.reward is None and outcome.done and "pyflakes" in outcome.details["error"]

    def test_settings_without_pyflakes_in_the_sandbox_are_refused(self) -> None:
        settings = {"environment": {"kind": "coding", "turns": 2, "feedback": ["static_analysis"]}}
        with pytest.raises(ValueError, match=r"set sandbox.packages to \[numpy, pyflakes\]"):
            Params.model_validate(settings)
        Params.model_validate({**settings, "sandbox": {"kind": "process", "packages": ["numpy", "pyflakes"]}})


@pytest.fixture(scope="module")
def typed() -> Iterator[CodingEnvironment]:
    with Executor(slots=1, limits=Limits(), packages=("numpy", "mypy")) as executor:
        yield CodingEnvironment(Settings(turns=2, feedback=("types",)), lambda: executor)


class TestTypeChecker:
    def notes(self, environment: CodingEnvironment, *joint_actions: tuple[str, str]) -> list[list[list[str]]]:
        outcomes = step(environment, *joint_actions)
        assert all(outcome.reward is not None for outcome in outcomes)
        return [[[note.text for note in own] for own in outcome.state.turns[-1].notes] for outcome in outcomes]

    def test_each_agent_is_told_of_its_own_part(self, typed: CodingEnvironment) -> None:
        helper = "import math\ndef aux(xs):\n    return math.flor(len(5))"
        main = "def main(xs):\n    count: int = aux(xs) and 'one'\n    return ''.join([1])"
        ((first, second),) = self.notes(typed, (helper, main))
        assert first == [
            'Module has no attribute "flor"; maybe "floor"?: return math.flor(len(5))',
            'Argument 1 to "len" has incompatible type "int"; expected "Sized": return math.flor(len(5))',
        ]
        assert second[1:] == ['List item 0 has incompatible type "int"; expected "str": return \'\'.join([1])']
        assert self.notes(typed, (AUX, MAIN)) == [[[], []]]

    def test_nothing_of_another_agents_text_is_told_not_even_in_a_type(self, typed: CodingEnvironment) -> None:
        helper = (
            "from typing import Literal\nclass SecretOfHelper:\n    pass\n"
            "def aux(xs) -> Literal['secret of helper']:\n    return SecretOfHelper()"
        )
        mains = (
            "def main(xs):\n    wanted: int = aux(xs)\n    return len(5)",
            "from part0 import aux\nimport part0\ndef main(xs):\n    wanted: int = part0.aux(xs)\n    return len(5)",
        )
        for first, second in self.notes(typed, *((helper, main) for main in mains)):
            assert any("SecretOfHelper" in note for note in first)
            assert any("len(5)" in note for note in second)
            assert not any("secret" in note.lower() for note in second), second

    def test_bad_programs_are_a_line(self, typed: CodingEnvironment) -> None:
        deep = "def main(xs):\n    return " + "-" * 3000 + "1"
        many = "def main(xs):" + "".join(f"\n    len({n})" for n in range(9))
        (first, second), (_, third) = self.notes(typed, ("def aux(xs:", deep), (AUX, many))
        assert [len(first), len(second), len(third)] == [1, 1, MAX_FINDINGS]

    def test_one_part_costs_the_other_no_findings(self, typed: CodingEnvironment) -> None:
        main = "def main(xs):\n    return len(5) or aux(xs)"
        helpers = (
            "def aux(xs, xs):\n    return xs",
            "import numpy as np\ndef aux(xs):\n    return np.sum(xs)",
            "def aux(xs):\n    return 1\nreturn 2",
            "def aux(xs):\n    nonlocal y\n    return 1",
            "import numpy.linalg, numpy.random\nfrom numpy import *\ndef aux(xs):\n    return array(xs)",
        )
        found = self.notes(typed, *((helper, main) for helper in helpers))
        for helper, (first, second) in zip(helpers, found, strict=True):
            assert len(second) == 1 and "len(5)" in second[0], helper
            assert not any("finish" in note for note in first), helper
        (first, second), *_ = self.notes(typed, (AUX, "def main(xs):\n    f = lambda a, a: 1\n    return len(5)"))
        assert first == [] and second

    def test_settings_without_mypy_in_the_sandbox_are_refused(self) -> None:
        settings = {"environment": {"kind": "coding", "turns": 2, "feedback": ["static_analysis", "types"]}}
        sandbox = {"kind": "process", "packages": ["numpy", "pyflakes"]}
        with pytest.raises(ValueError, match=r"set sandbox.packages to \[numpy, pyflakes, mypy\]"):
            Params.model_validate({**settings, "sandbox": sandbox})


class Server(HttpServer):
    """An expert that suggests one edit of the first line of code, or answers what it was told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        self.says: Any = None  # content, or a function from the question to a reply
        self._own = threading.Lock()
        super().__init__()

    def post(self, path: str, body: dict[str, Any], authorisation: str) -> Reply:
        question = body["messages"][0]["content"]
        with self._own:
            self.asked.append(question)
            self.bodies.append(body)
            self.keys.add(authorisation)
        if callable(self.says):
            return self.says(question)  # type: ignore[no-any-return]  # a test's own function
        if self.says is not None:
            return reply(self.says)
        line = question.split("Your code:\n")[-1].splitlines()[0]
        return reply(f"```json\n{edits((line, line + '  # better'))}\n```")


def edits(*pairs: tuple[str, str]) -> str:
    return json.dumps({"edits": [{"old": old, "new": new} for old, new in pairs]})


def reply(content: Any) -> Reply:
    usage = {"prompt_tokens": 100, "completion_tokens": 7}
    return Reply.json({"choices": [{"message": {"content": content}}], "usage": usage})


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()


def expert(server: Server, turns: int = 2, feedback: Sequence[str] = ("tests", "expert"), **options: Any) -> Any:
    section = Expert(url=f"{server.url}/v1", model="wise", **{"retries": 0, "cache": "", **options})
    return CodingEnvironment(Settings(turns=turns, feedback=tuple(feedback), expert=section), Failing)


def spent(outcome: Any) -> dict[str, float]:
    return {name: amount for name, amount in outcome.details["costs"].items() if amount}


class TestExpert:
    def test_an_agent_is_shown_the_edits_of_its_own_code(self, server: Server) -> None:
        environment = expert(server, max_tokens=77)
        (outcome,) = step(environment, (AUX, MAIN))
        assert environment.observe(outcome.state, 0).endswith(
            "- an expert suggests, instead of:\ndef aux(helpers_name):\n  to write:\ndef aux(helpers_name):  # better\n"
            "Write it again, improved:\n"
        )
        sources = [part.source for part in environment.parts(outcome.state, 0)]
        assert sources == ["task", "own code", "tests", "tests", "expert", ""]
        assert spent(outcome) == {
            "expert_requests": 2, "expert_prompt_tokens": 200, "expert_completion_tokens": 14
        }  # fmt: skip
        assert {(body["model"], body["temperature"], body["max_tokens"]) for body in server.bodies} == {("wise", 0, 77)}

    def test_it_sees_what_the_agent_is_shown_and_nothing_else(self, server: Server) -> None:
        environment = expert(server)
        (outcome,) = step(environment, (AUX, MAIN))
        helper, main = sorted(server.asked, key=lambda text: "mains_name" in text)
        assert "helpers_name" in helper and "mains_name" not in helper and PROBLEM.observations["main"] not in helper
        assert "mains_name" in main and "helpers_name" not in main and PROBLEM.observations["helper"] not in main
        assert "assert candidate([1, 2, 3]) == 4: got 6, expected 4" in main
        assert not any(text in question for question in server.asked for text in HIDDEN)
        for agent, foreign in ((0, "mains_name"), (1, "helpers_name")):
            assert foreign not in environment.observe(outcome.state, agent)

    def test_an_answer_that_echoes_its_question_tells_an_agent_nothing_new(self, server: Server) -> None:
        server.says = lambda question: reply(edits(("", question[-MAX_CODE:]), ("", question[:MAX_CODE])))
        environment = expert(server)
        (outcome,) = step(environment, (AUX, MAIN))
        for agent, foreign in ((0, "mains_name"), (1, "helpers_name")):
            seen = environment.observe(outcome.state, agent)
            assert foreign not in seen and not any(text in seen for text in HIDDEN)

    @pytest.mark.parametrize(
        "said",
        [
            "rewrite it all", "{}", "[]", '{"edits": 3}', '{"edits": [{"old": 1, "new": ""}]}', None,
            edits(("code that nobody wrote", "x")), edits(("", "x" * (MAX_CODE + 1))), '{"edits": [{"old": ""}]}',
        ],
    )  # fmt: skip
    def test_nonsense_gives_no_reward_and_no_next_turn(self, server: Server, said: Any) -> None:
        server.says = lambda question: reply(said)
        (outcome,) = step(expert(server), (AUX, MAIN))
        assert outcome.reward is None and outcome.done and not outcome.terms
        assert outcome.details["status"] == "expert_failed" and "makes no sense" in outcome.details["error"]
        assert outcome.details["costs"]["expert_failed"] == 2
        assert outcome.details["costs"]["expert_prompt_tokens"] == 200, "nonsense is paid for too"

    def test_edits_are_few_and_printable(self, server: Server) -> None:
        server.says = edits(*(("", f"\x1b[2Jy = {number}\u2028\n\tz") for number in range(9)))
        environment = expert(server)
        (outcome,) = step(environment, (AUX, MAIN))
        told = [note.text for note in outcome.state.turns[-1].notes[0] if note.source == "expert"]
        assert len(told) == MAX_EDITS and all(set(text) <= set(map(chr, range(32, 127))) | {"\n"} for text in told)
        server.says = edits()
        (outcome,) = step(environment, (AUX + " ", MAIN + "\n\n#"))
        assert outcome.state.turns[-1].notes[1][-1].text == "an expert suggests no edit"

    def test_one_failure_leaves_other_episodes_alone(self, server: Server) -> None:
        other = MAIN.replace("mains_name", "other_name")
        server.says = lambda question: Reply(500) if "mains_name" in question else reply(edits())
        outcomes = step(expert(server), (AUX, MAIN), (AUX, other))
        assert [outcome.reward is None for outcome in outcomes] == [True, False]

    def test_a_server_that_is_slow_or_gone_is_a_failure(self, server: Server) -> None:
        def slow(question: str) -> Reply:
            time.sleep(1.0)
            return reply(edits())

        server.says = slow
        (outcome,) = step(expert(server, timeout=0.1), (AUX, MAIN))
        assert outcome.reward is None and "timed out" in outcome.details["error"]
        environment = expert(server)
        server.close()
        (outcome,) = step(environment, (AUX, MAIN))
        assert outcome.reward is None and "no answer" in outcome.details["error"]

    def test_the_same_question_is_asked_once_even_after_a_kill(self, server: Server, tmp_path: Path) -> None:
        cache = str(tmp_path / "answers")
        first = expert(server, cache=cache)
        outcomes = step(first, (AUX, MAIN), (AUX, MAIN))
        assert len(server.asked) == 2
        assert spent(outcomes[1]) == {"expert_remembered": 2}
        with (tmp_path / "answers" / "answers.jsonl").open("a") as file:
            file.write('{"key": "cut o')
        again = expert(server, cache=cache)
        (outcome,) = step(again, (AUX, MAIN))
        assert outcome.state == outcomes[0].state and len(server.asked) == 2
        step(again, (AUX, MAIN + "\n"), (AUX, MAIN.replace("sum", "max")))
        assert len(server.asked) == 3, "white space around the code is not shown"

    def test_another_server_is_asked_itself(self, server: Server, tmp_path: Path) -> None:
        step(expert(server, cache=str(tmp_path)), (AUX, MAIN))
        other = Server()
        other.says = edits()
        (outcome,) = step(expert(other, cache=str(tmp_path)), (AUX, MAIN))
        assert (len(server.asked), len(other.asked)) == (2, 2), "the model's name alone does not say who answers"
        assert outcome.state.turns[-1].notes[0][-1].text == "an expert suggests no edit"
        other.close()

    def test_half_a_letter_is_kept_and_not_shown(self, server: Server, tmp_path: Path) -> None:
        server.says = edits(("", "x = '\ud800'"))
        first = expert(server, cache=str(tmp_path))
        again = [step(first, (AUX, MAIN))[0], step(expert(server, cache=str(tmp_path)), (AUX, MAIN))[0]]
        assert len(server.asked) == 2
        for outcome in again:
            assert outcome.state.turns[-1].notes[0][-1].text == "an expert suggests to add:\nx = ''"

    @pytest.mark.parametrize("count", [math.nan, math.inf, -5, "12", None, [1], 0.5])
    def test_a_count_of_tokens_that_is_none_is_not_counted(self, server: Server, count: object) -> None:
        answer = {"choices": [{"message": {"content": edits()}}], "usage": {"prompt_tokens": count}}
        server.says = lambda question: Reply.json(answer)
        (outcome,) = step(expert(server), (AUX, MAIN))
        assert spent(outcome) == {"expert_requests": 2}

    def test_it_is_asked_only_about_episodes_that_go_on(self, server: Server) -> None:
        environment = expert(server)
        (outcome,) = step(environment, (AUX, MAIN))
        (last,) = environment.step([outcome.state], [(AUX, MAIN)])
        assert len(server.asked) == 2, "the last turn needs no feedback"
        nothing = dict.fromkeys((f"expert_{amount}" for amount in AMOUNTS), 0.0)
        assert last.details["costs"] == nothing, "means count it too"

    def test_it_is_not_asked_where_the_caller_plays_no_further(self, server: Server) -> None:
        environment = expert(server, turns=3)
        state = environment.ending(environment.start(PROBLEM))
        (outcome,) = environment.step([state], [(AUX, MAIN)])
        assert outcome.done and not server.asked and not spent(outcome)

    def test_the_key_is_sent_and_told_to_nobody(
        self, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("OF_THE_EXPERT", "sk-very-secret")
        server.says = lambda question: Reply(401, b"wrong key: sk-very-secret")
        environment = expert(server, key_variable="OF_THE_EXPERT", cache=str(tmp_path))
        (outcome,) = step(environment, (AUX, MAIN))
        assert server.keys == {"Bearer sk-very-secret"}
        assert outcome.reward is None and "401" in outcome.details["error"]
        server.says = None
        (second,) = step(environment, (AUX, MAIN))
        written = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
        assert '"answer"' in written
        for text in (str(outcome), str(second), caplog.text, written, *server.asked):
            assert "sk-very-secret" not in text
        monkeypatch.delenv("OF_THE_EXPERT")
        with pytest.raises(ValueError, match="OF_THE_EXPERT is not set"):
            expert(server, key_variable="OF_THE_EXPERT")
        expert(server, key_variable="OF_THE_EXPERT", turns=1)  # nobody is asked


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"feedback": ["tests", "expert"]}, "expert must say which"),
        ({"expert": {"url": "http://127.0.0.1:1/v1", "model": "wise"}}, "feedback does not have it"),
        ({"feedback": ["tests", "tests"]}, "names a source twice"),
        ({"feedback": ["hidden_tests"]}, "static_analysis"),
    ],
)
def test_contradictory_settings_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Settings.model_validate(settings)


def test_the_hidden_test_of_this_file_has_the_values_that_must_not_be_seen() -> None:
    numbers = [str(node.value) for node in ast.walk(ast.parse(PROBLEM.hidden_tests)) if isinstance(node, ast.Constant)]
    assert sorted(numbers) == sorted(HIDDEN)
