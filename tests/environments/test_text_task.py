"""The short way to an environment: what a class of twenty lines gets, and what it is told when it is wrong."""

import random
import sys
from pathlib import Path
from typing import Any

import pytest
from rendezvous import Rendezvous

import symposium
from pipeline_lib.environment_api.registry import find, task_class
from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.settings.problems import SplitSizes, TextProblems
from tasks.identity.stages import environment_code

KIND = "rendezvous:Rendezvous"
SIZES = SplitSizes(train=20, validation=5, test=6)


class Few(Rendezvous):
    """It has three texts, two of which differ in case only."""

    def draw(self, rng: random.Random) -> str:
        return rng.choice(["one", "One", "two"])


class Silent(Rendezvous):
    """Nobody shows how it is done."""

    example = symposium.TextTask.example


def test_splits_are_full_differ_from_each_other_and_are_the_same_for_the_same_seed() -> None:
    task = find(KIND)
    splits = task.make_problems(TextProblems(sizes=SIZES))
    assert {name: len(found) for name, found in splits.items()} == SIZES.model_dump()
    texts = [problem.text for found in splits.values() for problem in found]
    assert len(set(texts)) == len(texts)
    assert task.make_problems(TextProblems(sizes=SIZES)) == splits
    assert task.make_problems(TextProblems(sizes=SIZES, seed=8)) != splits
    problem = splits["train"][0]
    assert task.read_problem(problem.to_json()) == problem
    assert task.parse_problem(f" {problem.text}\n") == problem
    with pytest.raises(TypeError):
        task.read_problem({"word": "a", "family": "a"})


def test_too_few_texts_are_refused_in_words_that_name_the_method() -> None:
    with pytest.raises(ProblemsError, match=r"Few\.draw: 1000 draws brought no new text after 2, and .* for 31"):
        Few().make_problems(TextProblems(sizes=SIZES))


def test_the_first_metric_is_the_primary_one_unless_another_is_named() -> None:
    measures = {"first": Rendezvous.measures["met"], "second": Rendezvous.measures["met"]}
    assert type("Own", (Rendezvous,), {"measures": measures}).primary == "first"
    assert type("Own", (Rendezvous,), {"measures": measures, "primary": "second"}).primary == "second"
    assert Few.primary == "met"


def test_an_outcome_has_the_sum_of_the_terms_and_ends_the_episode() -> None:
    game = Rendezvous().make(None, lambda: None)
    (problem,) = Rendezvous().make_problems(TextProblems(sizes=SplitSizes(train=1, validation=1, test=1)))["train"]
    state = game.start(problem)
    assert [game.observe(state, agent) for agent in (0, 1)] == [f"left of {problem.text}:", f"right of {problem.text}:"]
    met, apart, lost = game.step([state] * 3, [["x", "x "], ["x", "y"], ["", "x"]])
    assert (met.reward, met.metrics, met.done) == (pytest.approx(1.2), {"met": 1.0}, True)
    assert (apart.reward, lost.reward) == (pytest.approx(0.2), 0.0)
    assert met.details == {"schemes": ["x"]}


def test_demonstrations_are_examples_and_mistakes_answer_another_problem() -> None:
    class Told(Rendezvous):
        def example(self, text: str, agent: str, rng: random.Random) -> str:
            return f"{agent} {text}"

    problems = Told().make_problems(TextProblems(sizes=SIZES))["train"]

    def share_right(mistakes: float) -> float:
        shown = Told().demonstrate(problems, 400, mistakes, 0)
        return sum(one.observation == one.action.replace(" ", " of ", 1) + ":" for one in shown) / len(shown)

    assert share_right(0.0) == 1.0
    assert 0.3 < share_right(0.6) < 0.6, "0.4, and 0.03 that draw the same problem again"


def test_without_examples_the_embedded_model_cannot_be_warm_started() -> None:
    with pytest.raises(ValueError, match="use a pretrained policy"):
        Silent().demonstrate([], 1, 0.0, 0)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that scores by a helper, which it imports when it scores."""
    folder = tmp_path / "somebodys_task"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "helper.py").write_text("FACTOR = 1\n")
    source = Path(sys.modules["rendezvous"].__file__ or "").read_text()
    source = source.replace(
        "        placed =", "        from somebodys_task.helper import FACTOR as factor\n        placed ="
    )
    (folder / "task.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("SYMPOSIUM_HOME", str(tmp_path / ".symposium"))
    return folder


def test_what_its_methods_import_and_the_base_class_are_part_of_the_identity(package: Path) -> None:
    def files(kind: str = "somebodys_task.task") -> dict[str, Any]:
        task_class.cache_clear()
        return environment_code(kind).files

    before = files()
    assert "pipeline_lib.text_task" in before and "pipeline_lib.text_task" in before
    assert not [name for name in before if name.partition(".")[0] == "symposium"]
    (package / "helper.py").write_text("FACTOR = 2\n")
    assert {name for name, found in files().items() if before[name] != found} == {"somebodys_task.helper"}
    before = files()
    (package / "settings.py").write_text("BONUS = 1.0\n")  # as all files of a user's package do
    assert {name for name, found in files().items() if before.get(name) != found} == {"somebodys_task.settings"}
