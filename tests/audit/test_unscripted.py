"""Rewards with a term that no scripted team earns: refused if that term is worth more than the task, else accepted."""

import ast
import functools
import random
import re
import string
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import symposium
from pipeline_lib.audit.edits import PROGRAM, TEXT, edits_with, spoiled
from pipeline_lib.audit.examiner import Examiner, Progress, ScriptedExaminer
from pipeline_lib.audit.pattern_texts import matched_by
from pipeline_lib.audit.result import Check, Status, worst
from pipeline_lib.audit.reward_words import Words, words_of
from pipeline_lib.environment_api.environment import RewardError
from pipeline_lib.environment_kit.make import make_environment
from pipeline_lib.environments.coding.audit import CodingExaminer
from pipeline_lib.environments.coding.generated import generate
from pipeline_lib.environments.coding.settings import CodingSettings, GeneratedProblems
from pipeline_lib.environments.writing.audit import WritingExaminer
from pipeline_lib.environments.writing.settings import GeneratedTexts, WritingSettings
from pipeline_lib.settings.problems import SplitSizes
from pipeline_lib.settings.sandbox import ProcessSandbox
from pipeline_lib.text_task import TextProblem
from tests.audit.public_rewards import tags
from tests.audit.unscripted import BAD, LATER_BAD, LATER_SOUND, PATTERNS, SOUND, UNLIKE, Code, Meeting
from tests.sampling import sampled

SIZES = SplitSizes(train=4, validation=1, test=1)
#: Kinds of nodes that only newer versions of Python know, and names of old ones.
_OTHERS = {"TypeAlias", "TemplateStr", "Interpolation", "Num", "Str", "Bytes", "NameConstant", "Ellipsis"}
#: Programs and readings take seconds, so these alone, and of these a sample.
SAMPLE = {
    "code: 0.3 tests + 1.0 hints", "code: 0.3 tests + 1.0 todo", "code: 40 % of the tests are enough",
    "code: tests that fade", "code: tests + 0.2 hints", "text: 0.3 facts + 1.0 exclamation",
    "text: 0.3 facts + 1.0 capitals", "text: 0.3 facts + 1.0 list", "text: facts, at most 40 %",
    "text: facts + 0.2 capitals", "text: facts, doubled by questions", "code: tests, or tabs", "text: facts, or once",
    "text: facts, or emoji", "code: 0.3 tests + 1.0 long main", "code: tests + 0.2 long main",
    *(f"text: facts, or {name}" for name in PATTERNS),
    *(f"text: 0.3 facts + 1.0 {name}" for name in UNLIKE), *(f"text: facts + 0.2 {name}" for name in UNLIKE),
}  # fmt: skip
ALL = BAD | LATER_BAD | SOUND | LATER_SOUND


@pytest.fixture(scope="module")
def played() -> Iterator[dict[str, tuple[Any, Any, Any]]]:
    from pipeline_lib.environment_api.registry import find

    coding = make_environment(CodingSettings(), ProcessSandbox())
    writing = make_environment(WritingSettings(), ProcessSandbox())
    texts = find("writing").make_problems(GeneratedTexts(sizes=SIZES))["train"]
    yield {
        "coding": (coding, generate(GeneratedProblems(sizes=SIZES))["train"], CodingExaminer),
        "writing": (writing, texts, WritingExaminer),
    }
    coding.close()
    writing.close()


def audited(
    played: dict[str, tuple[Any, Any, Any]],
    kind: str,
    reward: Any,
    progress: Progress = lambda done, total, text: None,
) -> list[Check]:
    examiner: Examiner
    if kind == "own":
        task = reward()
        rng = random.Random(1)
        problems: Any = [TextProblem(text, text) for text in (task.draw(rng) for _ in range(4))]
        environment, examiner = task.make(None, None), task.audit()
    else:
        environment, problems, made = played[kind]
        examiner = made()
        environment._reward, environment.reward_bounds = reward, reward.bounds
    return examiner.examine(environment, problems, 0, progress)[1]


@pytest.mark.parametrize(
    "name",
    [*(name for name in ALL if name.startswith("own")), *sampled(sorted(SAMPLE), 4, "unscripted", "pipeline_lib")],
)
def test_only_a_reward_that_pays_more_for_something_else_is_refused(
    played: dict[str, tuple[Any, Any, Any]], name: str
) -> None:
    checks = audited(played, *ALL[name])
    found = [check.sentence for check in checks if check.status is Status.FAIL]
    assert bool(found) == (name in BAD | LATER_BAD), (name, found)
    assert all(check.mend for check in checks if check.status is Status.FAIL and check.name in ("edits", "form"))


class Bananas(Meeting):
    """Nobody who was scripted, and no edit, ever writes this word, which does not stand in the source either."""

    worth = 0.2
    reward_bounds = (0.0, 1.2)

    def score(self, text: str, actions: Any) -> Any:
        from symposium import Score

        found = super().score(text, actions)
        said = "ana".join(("ban", "")) in str(actions)
        return Score({"met": found.terms["met"], "fruit": self.worth * said}, found.metrics)


class ManyBananas(Bananas):
    """The same, and worth more than the task."""

    worth = 3.0
    reward_bounds = (0.0, 4.0)


def test_a_term_that_nobody_earns_is_refused_by_name_if_it_is_worth_more_than_the_task() -> None:
    assert worst([check.status for check in audited({}, "own", Bananas)]) is Status.PASS
    form = next(check for check in audited({}, "own", ManyBananas) if check.name == "form")
    assert form.status is Status.FAIL and "nobody earns anything by the term fruit" in form.sentence
    assert "declare bounds that are reached" in form.mend


class Tiring(Meeting):
    """Pays less every time that it is asked."""

    asked = 0

    def score(self, text: str, actions: Any) -> Any:
        from symposium import Score

        Tiring.asked += 1
        found = super().score(text, actions)
        return Score({"met": 0.99**self.asked * found.terms["met"]}, found.metrics)


def test_a_reward_that_depends_on_how_often_it_is_asked_is_refused() -> None:
    checks = {check.name: check for check in audited({}, "own", Tiring)}
    assert checks["repeatable"].status is Status.FAIL


class Lucky(Meeting):
    """Pays a little by chance."""

    reward_bounds = (0.0, 1.02)

    def score(self, text: str, actions: Any) -> Any:
        from symposium import Score

        found = super().score(text, actions)
        return Score({"met": found.terms["met"], "luck": 0.02 * random.random()}, found.metrics)


def test_a_reward_of_which_a_little_is_chance_is_warned_of() -> None:
    found = {name: audited({}, "own", kind) for name, kind in (("lucky", Lucky), ("sound", Meeting))}
    repeatable = {name: next(one for one in checks if one.name == "repeatable") for name, checks in found.items()}
    assert repeatable["sound"].status is Status.PASS and repeatable["lucky"].status is Status.WARN
    assert "depends on chance" in repeatable["lucky"].sentence


def test_progress_of_scripted_teams_and_edits_is_shown_while_they_are_played(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is found is the same as if all were played at once, also for a reward that depends on the order."""
    shown: dict[str, list[tuple[int, int]]] = {}
    monkeypatch.setattr(ScriptedExaminer, "at_once", 2)
    monkeypatch.setattr(Tiring, "asked", 0)
    part_by_part = audited(
        {}, "own", Tiring, lambda done, total, text: shown.setdefault(text, []).append((done, total))
    )
    assert list(shown) == ["scripted teams", "edits of scripted teams"]
    assert len(shown) == len(ScriptedExaminer.parts)
    for steps in shown.values():
        done = [done for done, _ in steps[:-1]]
        assert len(steps) > 3 and done == sorted(done) and done[0] == 0
        assert all(done < total for done, total in steps[:-1]) and steps[-1][0] == steps[-1][1]
    monkeypatch.setattr(ScriptedExaminer, "at_once", None)
    monkeypatch.setattr(Tiring, "asked", 0)
    assert audited({}, "own", Tiring) == part_by_part


def test_edits_of_programs_change_nothing_that_they_return(capsys: pytest.CaptureFixture[str]) -> None:
    source = (
        'def aux(value, times=2):\n    """Repeat."""\n    return [value] * times\n\n\ndef main(x):\n    return aux(x)\n'
    )
    for name, edit in PROGRAM.items():
        space: dict[str, Any] = {}
        changed = edit(source)
        exec(compile(changed, name, "exec"), space)
        assert changed != source and space["main"](3) == [3, 3], name
        assert edit("no program (") == "no program ("


def test_every_construct_of_the_language_and_every_character_is_tried() -> None:
    """So a term that counts some of them is earned, whichever it counts."""
    kinds = (ast.stmt, ast.expr, ast.operator, ast.cmpop, ast.unaryop, ast.boolop, ast.pattern)
    language = {kind for base in kinds for kind in base.__subclasses__()}
    written = PROGRAM["every construct"]("def main(x):\n    return x\n")
    missing = language - {type(node) for node in ast.walk(ast.parse(written))}
    assert {kind.__name__ for kind in missing} <= _OTHERS
    for edits, plain in ((TEXT, "well"), (PROGRAM, "def main(x):\n    return x\n")):
        said = "".join(edit(plain) for edit in edits.values())
        assert set(string.printable) - {"\r", "\x0b", "\x0c"} <= set(said)
    documented = PROGRAM["docstrings"]("def main(x):\n    return x\n")
    assert "\t" in ast.unparse(ast.parse(documented)), "what survives when the text of a program is written anew"


WITHOUT_A_FILE = """
WORDS = {"gladly": 1}

def helper(text):
    return "certainly" in text

class Kind:
    def __call__(self, text):
        return helper(text) and "kindly" in text

def friendly(completions, **columns):
    return [float("sure" in text or helper(text) or any(word in text for word in WORDS)) for text in completions]

def last(completions, answer, **columns):
    return [float(text.split()[-1:] == [right]) for text, right in zip(completions, answer)]
"""


def test_the_words_of_a_reward_that_was_written_in_a_notebook_are_found_too() -> None:
    """There, a function's module has no file."""
    made: dict[str, Any] = {"__name__": "a notebook"}
    exec(WITHOUT_A_FILE, made)
    assert {"sure", "certainly", "gladly"} <= set(words_of((made["friendly"],)).anywhere)
    assert {"kindly", "certainly"} <= set(words_of(made["Kind"]()).anywhere)
    rows = [
        {"prompt": f"What is {a} + {b}?", "answer": str(a + b)} for a, b in zip(range(9), range(3, 48, 5), strict=True)
    ]
    functions = [made["last"], made["friendly"]]
    assert symposium.audit(functions, rows, metric="last:answer", weights=[1.0, 0.05]).passed
    assert not symposium.audit(functions, rows, metric="last:answer", weights=[1.0, 4.0]).passed


def test_what_a_reward_holds_is_read_too() -> None:
    """A function that a factory was given, or an attribute, may be of another module."""

    def made(inner: Any) -> Any:
        return lambda completions, **_: [inner(text) for text in completions]

    class Holds:
        def __init__(self, inner: Any) -> None:
            self.parts = {"one": [inner]}

    for held in (made(tags), functools.partial(made(tags), 1), Holds(tags), (made(tags), 3)):
        assert "<think>" in " ".join(words_of(held).anywhere), held


def test_the_words_that_a_reward_looks_for_are_read_in_its_source() -> None:
    words = words_of(Code())
    assert {"once upon a time", "todo", "three", "#!"} <= set(words.anywhere)
    assert not any("that no scripted team earns" in word for word in words.anywhere), "documentation is not looked for"
    assert not any(words_of(3)) and edits_with(words_of(3)) == {}
    assert "todo" in words_of(Bananas).anywhere, "what a module uses of another one of a user is read too"
    edits = edits_with(Words(["well"], ["So: "], ["The end."], ["Aye."]))
    assert edits["'The end.' at its end"]("So.") == "So.The end."
    sized = edits_with(Words(sizes=[3]))
    made = [sized[f"cut or filled to 3 {what}"]("one two") for what in ("characters", "words", "lines")]
    assert made == ["one", "one two so", "one two\nso\nso"]
    assert edits["'So: ' at its beginning"]("well") == "So: well" and edits["'Aye.' alone"]("So.") == "Aye."
    program = edits_with(words)["words of the reward's source in a program"]("def main(x):\n    return x\n")
    assert ast.parse(program) and program.startswith("#!")


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        (r"(?i)\bas an ai model\b", ["as an ai model"]),
        (r"^\d{3}-[A-Z]+$", ["777-A"]),
        (r"(yes|no|maybe)", ["yes", "no", "maybe"]),
        (r"[^a]b|\s+c?", ["bb", " c"]),
        (r"<answer>(.*?)</answer>", ["<answer>a</answer>"]),
        (r"(?P<one>.)(?=x)", []),
        ("(", []),
        ("a{4294967295}", []),
    ],
)
def test_texts_that_a_pattern_matches(pattern: str, texts: list[str]) -> None:
    found = list(matched_by(pattern))
    assert [text if text != "ab" else "bb" for text in found] == texts
    assert all(re.search(pattern, text) for text in found)


def test_what_the_working_team_earns_by_the_way_counts_as_earned_without_the_task() -> None:
    space: dict[str, Any] = {}
    exec(spoiled("def main(x):\n    if x:\n        return x\n    return 0\n"), space)
    assert space["main"](3) == (3,) and space["main"](0) == (0,)
    assert spoiled("one two three") == "three two one"


class Liar(Meeting):
    """Pays for exclamation marks more than its bounds say."""

    feature, worth = "exclamation", 0.2


def test_a_reward_that_leaves_its_bounds_is_refused_by_audit_and_play() -> None:
    checks = {check.name: check for check in audited({}, "own", Liar)}
    assert checks["bounds"].status is Status.FAIL and "outside the bounds" in checks["bounds"].sentence
    task = Liar()
    environment = task.make(None, None)
    state = environment.start(TextProblem("p", "p"))
    with pytest.raises(RewardError, match=r"earned 1\.2 \(met 1, feature 0\.2\), but the reward declares 0 to 1"):
        environment.refuse_outside_bounds(environment.step([state], [["x!!!!!", "x"]]))
    environment.refuse_outside_bounds(environment.step([state], [["x", "x"]]))


def test_the_table_is_as_large_as_the_page_says() -> None:
    assert len(BAD) >= 34 and len(SOUND) >= 20
    assert Code("hints", 0.3, 1.0).bounds == (0.0, 1.3)


class Unmeasured(Meeting):
    """Measures nothing that is a number."""

    value = float("nan")

    def score(self, text: str, actions: Mapping[str, str]) -> symposium.Score:
        found = super().score(text, actions)
        return symposium.Score(found.terms, {**found.metrics, "odd": self.value})


class Unbounded(Unmeasured):
    value = float("inf")


class Vast(Unmeasured):
    value = 1e300


@pytest.mark.parametrize("kind", [Unmeasured, Unbounded, Vast])
def test_a_metric_that_is_no_number_is_refused_by_audit_and_play(kind: type[Unmeasured]) -> None:
    said = rf"the metric 'odd' of a joint action is {re.escape(str(kind.value))}; it must be a number from"
    with pytest.raises(RewardError, match=said):
        audited({}, "own", kind)
    task = kind()
    environment = task.make(None, None)
    with pytest.raises(RewardError, match=said):
        environment.refuse_unusable_metrics(environment.step([environment.start(TextProblem("p", "p"))], [["x", "x"]]))


@pytest.mark.parametrize(
    "bounds", [(0.0, 1.2e30), (0.0, float("inf")), (float("nan"), 1.0), (1.0, 0.0), (0.0, 1e-10), (1e6, 1e6 + 1e-4)]
)
def test_bounds_that_nothing_can_be_learned_with_are_refused(bounds: tuple[float, float]) -> None:
    environment = Meeting().make(None, None)
    environment.refuse_unusable_bounds()
    environment.reward_bounds = bounds
    with pytest.raises(RewardError, match=r"reward_bounds of the environment TextGame are .*; training (needs|leaves)"):
        environment.refuse_unusable_bounds()
