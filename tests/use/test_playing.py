"""Watching a team: what is shown is what happened, in an order that can be read, and nothing is changed by it."""

import contextlib
import io
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from pipeline_lib.environment_api.environment import Check, Exhibit
from pipeline_lib.environment_api.metrics import describe
from pipeline_lib.environment_api.registry import find, names
from pipeline_lib.environment_kit.make import make_environment
from pipeline_lib.environments.coding.datasets import typed_problem
from pipeline_lib.environments.coding.runtime import CodingEnvironment
from pipeline_lib.environments.coding.settings import CodingSettings
from pipeline_lib.play import Player
from pipeline_lib.play.roots import paired
from pipeline_lib.play.watching import Generation
from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.problems.splits import load_manifest
from pipeline_lib.protocols import make_protocol
from pipeline_lib.report.text import harmless
from pipeline_lib.rollouts.actions import TextStream
from pipeline_lib.rollouts.engine import Action, Request
from pipeline_lib.rollouts.transformers_engine import TransformersEngine
from pipeline_lib.sandbox.executor import make_executor
from pipeline_lib.settings.compose import validate_params
from pipeline_lib.settings.params import Params
from pipeline_lib.settings.sandbox import ProcessSandbox
from tasks.experiment.arms import PROBLEMS
from tasks.use import choosing, playing
from tasks.use.choosing import ChoiceError, untrusted_problem
from tasks.use.episode import AgentAnswer, Played, PlayedTurn, Show, as_json
from tasks.use.playing import opened, play
from tasks.use.showing import TerminalShow, side_by_side
from tests.needs import needs
from tests.play.engines import Scripted
from tests.training.conftest import SAMPLING, TOYS, Agree, make_team


def player(shared: bool = False, turns: int = 1, protocol: str = "decentralised", **options: Any) -> Player:
    team = make_team(shared=shared)
    engine = TransformersEngine(rows=8)
    engine.load(team.policies)
    sampling = replace(SAMPLING, max_new_tokens=5)
    return Player(Agree(turns=turns), team, engine, sampling, make_protocol(protocol), **options)


class Heard(Show):
    """Writes down every call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, str]] = []

    def prompted(self, generation: Generation) -> None:
        self.calls.append(("prompted", generation.agent, generation.prompt))

    def wrote(self, generation: Generation, text: str) -> None:
        self.calls.append(("wrote", generation.agent, text))

    def finished(self, generation: Generation, said: AgentAnswer) -> None:
        self.calls.append(("finished", generation.agent, said.text))

    def turned(self, number: int, turn: PlayedTurn) -> None:
        self.calls.append(("turned", str(number), str(turn.reward)))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("protocol", ["decentralised", "one_round_discussion"])
def test_each_agent_is_shown_to_its_end_before_the_next_and_the_pieces_are_its_text(shared: bool, protocol: str):
    show = Heard()
    watched = player(shared, turns=2, protocol=protocol)
    played = play(watched, "a team", TOYS[0], 3, show)
    rounds = 2 if protocol == "one_round_discussion" else 1
    # Of one policy, both are drawn in one batch; even so one is shown after the other.
    expected = [who for _ in range(2) for _ in range(rounds) for who in ("one", "two")]
    speeches: list[tuple[str, str, str]] = []
    pieces = ""
    for kind, who, text in show.calls:
        if kind == "prompted":
            pieces = ""
            speeches.append((who, text, ""))
        elif kind == "wrote":
            assert who == speeches[-1][0]
            pieces += text
        elif kind == "finished":
            assert pieces == text and who == speeches[-1][0]
    assert [who for who, _, _ in speeches] == expected
    assert [call for call in show.calls if call[0] == "turned"] == [
        ("turned", str(number), str(turn.reward)) for number, turn in enumerate(played.turns)
    ]
    assert any(kind == "wrote" and text for kind, _, text in show.calls)
    assert [said.agent for turn in played.turns for said in turn.said] == expected


@pytest.mark.parametrize("shared", [False, True])
def test_tokens_come_before_the_action_is_finished_and_watching_changes_no_draw(shared: bool):
    show = Heard()
    watched = player(shared)
    played = play(watched, "a team", TOYS[1], 5, show)
    unwatched = player(shared).play(paired([TOYS[1]], 1, 5)).decisions
    assert [said.text for said in played.turns[0].said] == [action.text for action in unwatched[0].actions]
    assert played.reward == unwatched[0].reward
    words = [text for kind, who, text in show.calls if kind == "wrote" and who == "one"]
    assert len(words) > 1, "five tokens are five words of this tokenizer"
    assert watched.engine.listener is None


def test_a_stream_gives_no_half_letters_and_no_beginnings_of_stop_strings():
    class Bytes:
        name = "bytes"
        stop_strings = ("END", "ENOUGH")

        def decode(self, ids: list[int]) -> str:
            return bytes(ids).decode(errors="replace")

    stream = TextStream(Bytes())  # type: ignore[arg-type]
    given = [stream.add(byte) for byte in "é ENd EN".encode()]
    assert given == ["", "é", " ", "", "", "ENd", " ", "", ""]
    assert stream.add(ord("D")) == "" and stream.end("é ENd ") == ""
    other = TextStream(Bytes())  # type: ignore[arg-type]
    assert [other.add(byte) for byte in b"xEN"] == ["x", "", ""]
    assert other.end("xEN") == "EN", "it ended, and what was held back was no stop string"


def test_what_an_agent_writes_cannot_command_the_terminal():
    text = "\x1b[2J[bold]not markup[/bold]\x9b31m\u202eevil\n\tx = 'é'"
    assert harmless(text) == "�[2J[bold]not markup[/bold]�31m�evil\n\tx = 'é'"
    out = io.StringIO()
    generation = Generation(paired([TOYS[0]], 1, 0)[0], 0, 0, "one", text)
    show = TerminalShow(Console(file=out, force_terminal=True, width=100), {})
    show.prompted(generation)
    show.wrote(generation, text)
    show.turned(
        0, PlayedTurn([], Exhibit(text, "python", (Check(text, False, text),)), 1.0, {"x": 1.0}, {}, {"error": text})
    )
    shown = out.getvalue()
    assert "\x1b[2J" not in shown and "\x9b" not in shown and "\u202e" not in shown
    assert shown.count("[bold]not markup[/bold]") >= 4


class Parrot(Scripted):
    """Says the same of everything."""

    def actions(self, request: Request) -> list[Action]:
        return [Action((8,), (-1.0,), "GRAB_LEFT. He ate.", "stop")] * request.n


@pytest.mark.drawn("environments that are played", "pipeline_lib", count=2)
@pytest.mark.parametrize(
    "kind", [pytest.param(name, marks=needs("reasoning-gym") if name == "reasoning_gym" else ()) for name in names()]
)
def test_every_environment_is_played_shown_and_written_as_json(kind: str):
    """Nothing here knows one: what it shows comes through `Task` and `Environment`."""
    section = {"kind": kind, "prompt": "compact"} if kind == "philosophers" else {"kind": kind}
    train = {"groups": "episodes"}  # a tree of so many turns would be refused
    settings = {"environment": section, "evaluate": {"baselines": []}, "train": train}
    params = validate_params(settings, Path("params.yaml"))
    task = find(kind)
    problem = task.make_problems(params.problems)["validation"][0]
    environment = make_environment(params.environment, params.sandbox)
    out = io.StringIO()
    try:
        agents = environment.agents(problem)
        watched = Player(environment, make_team(agents), Parrot(), SAMPLING)
        show = TerminalShow(Console(file=out, width=100), task.metrics())
        played = play(watched, "parrots", problem, 0, show)
    finally:
        environment.close()
    assert played.reward is not None and played.turns[-1].exhibit is not None
    assert {said.agent for turn in played.turns for said in turn.said} == set(agents)
    assert "GRAB_LEFT. He ate." in out.getvalue() and f"{agents[0]} is told" in out.getvalue()
    assert "-0.000" not in out.getvalue(), "a price of nothing"
    for name in played.turns[-1].metrics:
        assert f"{describe(name, task.metrics()).label}:" in out.getvalue()
        assert describe(name, task.metrics()).about, f"{name} is explained"
    assert set(played.turns[-1].terms) <= set(task.terms(params.environment)), "terms are explained"
    assert json.loads(json.dumps(as_json(played, {})))["turns"][0]["said"][0]["agent"] == agents[0]


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """The settings of a project whose problems are prepared, in the current folder."""
    monkeypatch.chdir(tmp_path)
    sizes = {"problems": {"sizes": {"train": 32, "validation": 2, "test": 2}}}
    params = validate_params(sizes, Path("params.yaml"))
    prepare("coding", params.problems, PROBLEMS)
    return params


def test_a_served_team_refuses_problems_of_the_test_split_as_a_watched_one_does(prepared: Params):
    known = {split: (PROBLEMS / f"{split}.jsonl").read_text().splitlines()[0] for split in ("test", "validation")}
    renamed = json.dumps({**json.loads(known["test"]), "id": "mine", "hidden_tests": "", "visible_tests": ""})
    for read in (untrusted_problem, choosing.typed_problem):
        assert read(prepared, known["validation"]).observations
        for text in (known["test"], renamed):
            with pytest.raises(choosing.ChoiceError, match="a problem of the test split"):
                read(prepared, text)


def test_an_empty_text_is_no_problem_and_does_not_mean_the_first(prepared: Params):
    first = load_manifest(PROBLEMS)["splits"]["validation"]["ids"][0]
    assert choosing.choose_problem(prepared, None).id == first
    for nothing in ("", " \n"):
        with pytest.raises(choosing.ChoiceError, match=f"the problem is empty; give an id such as {first}"):
            choosing.choose_problem(prepared, nothing)


def test_a_row_that_is_no_problem_is_refused_with_the_file_that_has_some(prepared: Params):
    row = json.loads((PROBLEMS / "validation.jsonl").read_text().splitlines()[0])
    for wrong in ({"a": 1}, row | {"observations": None}, row | {"observations": {"main": 5}}, row | {"prelude": 5}):
        with pytest.raises(choosing.ChoiceError, match=r"are not like those of a line of data/problems/train\.jsonl"):
            untrusted_problem(prepared, json.dumps(wrong))
    with pytest.raises(choosing.ChoiceError, match="not a problem of coding: maximum recursion depth"):
        untrusted_problem(prepared, '{"a":' * 100_000)


def test_a_file_that_is_not_text_is_no_problem(prepared: Params, tmp_path: Path):
    (tmp_path / "mine.json").write_bytes(b'{"id": "\xff"}')
    with pytest.raises(choosing.ChoiceError, match="not a problem of coding: 'utf-8' codec"):
        choosing.choose_problem(prepared, str(tmp_path / "mine.json"))


def test_a_problem_with_half_a_character_is_refused(prepared: Params):
    row = json.loads((PROBLEMS / "validation.jsonl").read_text().splitlines()[0])
    with pytest.raises(choosing.ChoiceError, match="surrogates not allowed"):
        untrusted_problem(prepared, json.dumps(row | {"observations": {"helper": "\ud800", "main": "x"}}))


def test_tests_that_a_stranger_sends_are_never_run_as_they_would_be_where_they_are_trusted(
    tmp_path: Path, prepared: Params
):
    reached = tmp_path / "reached"
    evil = f"__import__('pathlib').Path({str(reached)!r}).touch()"
    typed = f"def f(x):\n    'Return x.'\n\nassert f(1) == 1 or {evil}"
    row = typed_problem(typed).to_json() | {
        "prelude": evil,
        "visible_tests": f"def check(candidate):\n    assert {evil}",
    }
    environment = make_environment(CodingSettings(turns=2), prepared.sandbox)
    try:
        for text in (typed, json.dumps(row)):
            problem = untrusted_problem(prepared, text)
            assert problem.observations == row["observations"], "what agents are told stays"
            state = environment.start(problem)
            outcome = environment.step([state], [("def aux(x):\n    return x", "def f(x):\n    return aux(x)")])[0]
            assert (
                outcome.details == {"status": "untested"}
                and "def f" in environment.exhibit(outcome.state, outcome.state.turns[-1].actions).text
            )
            assert environment._executor is None and not reached.exists()
    finally:
        environment.close()


def test_over_several_turns_prompts_are_shown_again_for_one_team_and_once_for_two():
    out = io.StringIO()
    known: set[str] = set()
    watched = player(turns=2)
    for _ in range(2):
        show = TerminalShow(Console(file=out, width=100), {}, known)
        played = play(watched, "a team", TOYS[0], 3, show)
    shown = out.getvalue()
    assert [shown.count(f"{name} is told {mark}") for name in ("one", "two") for mark in ("(turn 2)", "the same")] == [
        1, 2, 1, 2,
    ]  # fmt: skip
    assert shown.count(f"2 turns, reward {played.reward:+.3f}") == 2


def test_two_teams_are_compared_line_by_line():
    one = PlayedTurn(
        [], Exhibit("a = 1", "python", (Check("t1", True), Check("t2", False))), 0.5, {"x": 0.5}, {"m": 1.0}
    )
    two = PlayedTurn([], Exhibit("", "python", ()), None, {}, {})
    out = io.StringIO()
    teams = [Played("first", "p", [one]), Played("second", "p", [two])]
    Console(file=out, width=100).print(side_by_side(teams, {}))
    lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert {"t1 passed -", "t2 failed -", "reward, x +0.500 -", "reward +0.500 -", "m 1 -"} <= set(lines)
    assert any("a = 1" in line and "(nothing)" in line for line in lines)


TYPED = '''import math

def double_even(xs):
    """Return twice the sum of the even numbers of xs."""

assert double_even([1, 2, 4]) == 12
assert double_even([]) == 0
'''


def test_a_typed_function_is_a_problem_with_its_asserts_as_hidden_tests():
    problem = typed_problem(TYPED)
    assert problem.entry_point == "double_even" and problem.prelude == "import math"
    assert all("Return twice the sum" in text for text in problem.observations.values())
    assert all("== 12" not in text for text in problem.observations.values()), "tests are not told"
    assert "candidate([1, 2, 4]) == 12" in problem.hidden_tests and not problem.visible_tests
    with pytest.raises(ProblemsError, match="the problem has no function"):
        typed_problem("double it, please")
    with pytest.raises(ProblemsError, match="not Python"):
        typed_problem("def f(x):\n    ...\nassert f(1 ==")
    with pytest.raises(ProblemsError, match="could fail"):
        typed_problem("def f(x):\n    ...\nassert True")


def test_a_program_is_shown_with_each_test_and_without_tests_nothing_is_run_or_rewarded():
    programs = (
        "def aux(xs):\n    return [x for x in xs if x % 2 == 0]",
        "def double_even(xs):\n    return 2 * sum(aux(xs)) + 1",
    )
    environment = CodingEnvironment(CodingSettings(), lambda: make_executor(ProcessSandbox()))
    try:
        outcome = environment.step([environment.start(typed_problem(TYPED))], [programs])[0]
        exhibit = environment.exhibit(outcome.state, programs)
    finally:
        environment.close()
    assert exhibit.language == "python" and "def aux" in exhibit.text and "def double_even" in exhibit.text
    assert [(check.what, check.passed, check.answer) for check in exhibit.checks] == [
        ("assert candidate([1, 2, 4]) == 12", False, "got 13, expected 12"),
        ("assert candidate([]) == 0", False, "got 1, expected 0"),
    ]

    def no_sandbox() -> Any:
        raise AssertionError("nothing is to be run")

    untested = CodingEnvironment(CodingSettings(), no_sandbox)
    state = untested.start(typed_problem(TYPED.partition("assert")[0]))
    found = untested.step([state], [programs])[0]
    assert (found.reward, found.done, found.details) == (None, True, {"status": "untested"})
    assert untested.exhibit(state, programs) == replace(exhibit, checks=())


def test_a_problem_that_the_team_cannot_play_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    made = player()

    def start(problem: Any, seed: int = 0) -> Any:
        raise ValueError("its methods cannot be handed out")

    monkeypatch.setattr(made.environment, "start", start)
    monkeypatch.setattr(playing, "setup_of", lambda *_: None)
    monkeypatch.setattr(playing, "open_player", lambda *_: contextlib.nullcontext(made))
    choice: Any = SimpleNamespace(arm="team", folder=Path())
    why = f"problem {TOYS[0].id} cannot be played: its methods cannot be handed out"
    with pytest.raises(ChoiceError, match=why), opened(Params(), choice, TOYS[0]):
        pass
