"""The generated world: every statement is read back, sources are not, and no writer of a pair sees everything."""

import itertools
import random

import pytest

from pipeline_lib.environments.writing.problem import WritingProblem
from pipeline_lib.environments.writing.reading import lengths_fit
from pipeline_lib.environments.writing.settings import GeneratedTexts
from pipeline_lib.environments.writing.world import OPENINGS, TENSES, WORLDS, Kind, World, generate
from pipeline_lib.problems.splitting import FAMILY_SHARES, split_of
from tests.environments.writing.help import problems, world_of


@pytest.mark.parametrize("name", WORLDS)
def test_every_way_to_state_every_fact_is_read_back(name: str):
    world = WORLDS[name]
    read = 0
    for name, kind in world.kinds.items():
        for values in itertools.product(*(world.values(slot) for slot in kind.slots)):
            for template, tense in itertools.product(range(len(kind.statements)), TENSES):
                for hero in world.values("hero")[:2]:
                    sentence = world.state((name, values), hero, template, tense)
                    for text in (sentence, f"However, {sentence}"):
                        statement = world.read(text)
                        assert statement is not None, text
                        assert (statement.fact, statement.tense) == ((name, values), tense)
                        assert statement.hero == (hero if template == 0 else statement.hero)
                        assert statement.words == len(sentence.split())
                        read += 1
    assert read > 500


@pytest.mark.parametrize("name", WORLDS)
def test_nothing_else_is_read(name: str):
    world = WORLDS[name]
    rng = random.Random(0)
    for fact in world.draw(list(world.kinds) * 5, rng):
        hero = world.values("hero")[0]
        sentence = world.state(fact, hero, 0, "past")
        words = sentence[:-1].split()
        for other in (
            sentence[:-1],  # no full stop
            sentence.lower(),
            f"However, moreover, {sentence}",
            f"{sentence[:-1]} however.",
            " ".join(words[:-1]) + ".",
            " ".join([*words, words[-1]]) + ".",
            " ".join(reversed(words)).capitalize() + ".",
            *(world.tell(fact, hero, i) for i in range(2)),
            *(world.tell(fact, hero, i).capitalize() + "." for i in range(2)),
        ):
            assert world.read(other) is None, other


def test_words_in_two_classes_and_templates_that_look_alike_are_refused():
    parts = {"name": "x", "words": {"a": ("one",), "b": ("two",)}, "verbs": {}, "entities": frozenset()}
    with pytest.raises(ValueError, match="'one' is in two classes"):
        World(**{**parts, "words": {"a": ("one",), "b": ("one",)}}, kinds={})
    with pytest.raises(ValueError, match="look alike"):
        World(**parts, kinds={"k": Kind(("say {a}",), ()), "l": Kind(("say {a}",), ())})
    with pytest.raises(ValueError, match="'two' is a word of a template and of a class"):
        World(**parts, kinds={"k": Kind(("two {a}",), ())})


@pytest.mark.parametrize("task", ["summary", "introduction"])
def test_splits_share_no_family_and_the_same_settings_give_the_same_texts(task: str):
    settings = GeneratedTexts(task=task, sizes={"train": 60, "validation": 20, "test": 30})
    splits = generate(settings)
    assert splits == generate(settings)
    families = {split: {problem.family for problem in found} for split, found in splits.items()}
    for a, b in itertools.combinations(families.values(), 2):
        assert not a & b
    assert len(families["test"]) > 15
    assert [len(splits[split]) for split in ("train", "validation", "test")] == [60, 20, 30]
    assert {split_of(f"family {i}", 7) for i in range(100)} == set(FAMILY_SHARES)
    hashes = [problem.content_hash for found in splits.values() for problem in found]
    assert len(set(hashes)) == len(hashes)
    assert generate(settings.model_copy(update={"seed": 8}))["test"] != splits["test"]


def test_more_texts_than_there_are_is_an_answer_in_words(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pipeline_lib.problems.splitting.MAX_FAILED_DRAWS", 3)
    monkeypatch.setattr("pipeline_lib.environments.writing.world.split_of", lambda family, seed: "train")
    with pytest.raises(ValueError, match=r"problems.sizes.validation: asked for 5, but only 0"):
        generate(GeneratedTexts(sizes={"train": 3, "validation": 5, "test": 3}))


@pytest.mark.parametrize("task", ["summary", "introduction"])
def test_each_writer_sees_a_part_together_they_see_all_and_one_fact_is_seen_by_both(task: str):
    for problem in problems(task):
        first, second = map(set, problem.parts)
        assert first | second == set(range(len(problem.facts)))
        assert first - second and second - first and len(first & second) == 1
        world = world_of(problem)
        for role, part in (("first", first), ("second", second)):
            for number, fact in enumerate(problem.facts):
                told = [world.tell(fact, problem.hero, i) in problem.observations[role] for i in range(2)]
                assert any(told) == (number in part)
        assert lengths_fit(tuple(len(text.split()) for text in problem.reference), problem.limits)
        assert WritingProblem.from_json(problem.to_json()) == problem


def test_a_row_with_an_unknown_key_is_refused():
    row = problems("summary")[0].to_json()
    with pytest.raises(TypeError):
        WritingProblem.from_json({**row, "another": 1})


def test_openings_are_skipped_one_at_a_time():
    world = WORLDS["posts"]
    for opening in OPENINGS:
        assert world.read(f"{opening}, it was in March.") is not None
        assert world.read(f"{opening} it was in March.") is None
