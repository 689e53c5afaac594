"""The sound reward: what it is made of, and what nothing can be had for."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_lib.environments.writing.published import CONNECTIVES
from pipeline_lib.environments.writing.reading import is_complete, length_share, ratio_share, split_sentences
from pipeline_lib.environments.writing.world import OPENINGS, TENSES
from tests.environments.writing.help import SOUND, problems, reward, work, world_of

TASKS = ["summary", "introduction"]
ALL_CONNECTIVES = sorted({phrase for phrases in CONNECTIVES.values() for phrase in phrases} | set(OPENINGS))


@pytest.mark.parametrize("task", TASKS)
def test_the_reference_earns_everything_and_nothing_earns_nothing(task: str):
    for problem in problems(task):
        assert reward(problem, *problem.reference) == pytest.approx(SOUND.bounds[1]) == pytest.approx(2.59)
        assert reward(problem, "", "") == 0.0


def test_terms_of_a_mixed_pair_are_worked_out_by_hand():
    """Six facts: one is told in each text, one is invented, one is copied, one is told twice, one sentence is cut
    off."""
    problem = problems("summary")[0]
    world, facts = world_of(problem), problem.facts
    wrong = world.another(facts[1], random.Random(0))
    first = f"{world.state(facts[0], problem.hero, 0, 'past')} {world.state(wrong, problem.hero, 0, 'past')}"
    told = world.state(facts[4], problem.hero, 0, "present")
    copied = problem.text.split("; ")[3].capitalize() + "."
    second = f"{told} {copied} {told} {problem.hero} did it"
    found = work(problem, first, second)
    terms = SOUND.terms(found)
    assert terms["coverage"] == pytest.approx(2.2 * 2 / 6)
    assert terms["inventions"] == pytest.approx(-1.2 * 3 / 6), "a false sentence, a copy, and one that is cut off"
    assert terms["repeats"] == pytest.approx(-0.8 / 6)
    assert terms["style"] == pytest.approx((1 - 3 / 6 - 0.8 / 1.2 / 6) * 0.12 / 6), "a fact in each tense"
    assert terms["coherence"] == 0.0, "no two neighbours tell"
    assert (found.reading.sentences, found.reading.inventions, found.reading.copied) == (6, 2 / 6, 2 / 6)
    assert found.reading.complete == pytest.approx(5 / 6)
    assert found.reading.useful_words == (len(first.split(". ")[0].split()), len(told.split()))
    assert found.reading.notes[0][0] == "facts told: 1 of 3"
    assert "sentences that are copied or said twice: 2" in found.reading.notes[1]
    assert "sentences that do not follow from what you saw: 1" in found.reading.notes[1]


@pytest.mark.parametrize(
    ("told", "words", "share"),
    [(8, 8, 1.0), (12, 12, 1.0), (4, 8, 0.5), (0, 9, 0.0), (12, 18, 0.5), (12, 24, 0.0), (4, 18, 0.25)],
)
def test_a_length_is_reached_by_words_that_tell_and_exceeded_by_any(told: int, words: int, share: float):
    assert length_share(told, words, (8, 12)) == pytest.approx(share)


@pytest.mark.parametrize(
    ("told", "words", "share"),
    [
        ((10, 20), (10, 20), 1.0),
        ((10, 16), (10, 16), 1.0),
        ((10, 8), (10, 8), 0.5),
        ((10, 20), (25, 20), 0.5),  # idle words of the first make it longer
        ((10, 20), (10, 48), 0.5),  # idle words of the second too
        ((10, 64), (10, 64), 0.0),
        ((0, 20), (10, 20), 0.0),
        ((0, 0), (0, 0), 0.0),
    ],
)
def test_a_ratio_is_mended_by_words_that_tell_only(told, words, share):
    assert ratio_share(told, words, (1.6, 3.2)) == pytest.approx(share)


def test_joints_need_two_neighbours_that_tell_and_share_an_entity():
    problem = problems("introduction")[0]
    world, facts, hero = world_of(problem), problem.facts, problem.hero

    def joints(*templates: int) -> float:
        second = " ".join(
            world.state(fact, hero, template, "past") for fact, template in zip(facts[3:], templates, strict=True)
        )
        return work(problem, problem.reference[0], second).reading.links

    assert joints(0, 0, 0, 0) == 1.0
    assert joints(0, 1, 0, 0) == pytest.approx(3 / 5)
    assert joints(1, 1, 1, 1) == pytest.approx(2 / 5)


@st.composite
def texts(draw: st.DrawFn):
    """Return a problem and two texts of sentences that are true, false, copied, repeated or nonsense; the last may be
    cut off, as actions are that end by their length."""
    problem = draw(st.sampled_from(problems(draw(st.sampled_from(TASKS)))))
    world = world_of(problem)

    def sentence() -> str:
        fact = draw(st.sampled_from(problem.facts))
        what = draw(st.sampled_from(["true"] * 6 + ["false", "copied", "nonsense", "opened"]))
        if what == "nonsense":
            return draw(st.sampled_from(["Blark blemp.", "the of and!", "It was.", "Is it? No!"]))
        if what == "copied":
            return world.tell(fact, problem.hero, draw(st.integers(0, 1))).capitalize() + "."
        shown = world.another(fact, random.Random(draw(st.integers(0, 99)))) if what == "false" else fact
        text = world.state(shown, problem.hero, draw(st.integers(0, 1)), draw(st.sampled_from(TENSES)))
        return f"{draw(st.sampled_from(OPENINGS))}, {text}" if what == "opened" else text

    def text() -> list[str]:
        sentences = [sentence() for _ in range(draw(st.integers(0, 7)))]
        if sentences and draw(st.booleans()):
            sentences[-1] = sentences[-1][: len(sentences[-1]) // 2]
        return sentences

    return problem, text(), text()


@settings(max_examples=100, deadline=None)
@given(texts(), st.data())
def test_a_connective_never_pays(found, data: st.DataObject):
    problem, *sentences = found
    before = reward(problem, *map(" ".join, sentences))
    which, connective = data.draw(st.integers(0, 1)), data.draw(st.sampled_from(ALL_CONNECTIVES))
    words = " ".join(sentences[which]).split()
    place = data.draw(st.integers(0, len(words)))
    for added in (connective, f"{connective.capitalize()},", f"{connective}."):
        changed = [" ".join(each) for each in sentences]
        changed[which] = " ".join([*words[:place], added, *words[place:]])
        assert reward(problem, *changed) <= before + 1e-9


@settings(max_examples=100, deadline=None)
@given(texts(), st.data())
def test_a_copied_sentence_never_pays(found, data: st.DataObject):
    problem, *sentences = found
    before = reward(problem, *map(" ".join, sentences))
    world = world_of(problem)
    line = world.tell(data.draw(st.sampled_from(problem.facts)), problem.hero, data.draw(st.integers(0, 1)))
    which = data.draw(st.integers(0, 1))
    whole = [each for text in sentences for each in split_sentences(" ".join(text)) if is_complete(each)]
    candidates = [line, f"{line.capitalize()}.", problem.text, problem.observations["second"].strip(), *whole]
    place = data.draw(st.integers(0, len(sentences[which])))
    for copy in candidates:
        changed = [list(each) for each in sentences]
        changed[which].insert(place, copy)
        assert reward(problem, *map(" ".join, changed)) <= before + 1e-9, copy


@settings(max_examples=100, deadline=None)
@given(texts(), st.sampled_from([" ", "  ", "\n", "\t", "\n\n", " " * 300]), st.data())
def test_white_space_changes_nothing_for_the_better(found, space: str, data: st.DataObject):
    problem, *sentences = found
    whole = [" ".join(each) for each in sentences]
    before = reward(problem, *whole)
    which = data.draw(st.integers(0, 1))
    place = data.draw(st.integers(0, len(whole[which])))
    changed = list(whole)
    changed[which] = whole[which][:place] + space + whole[which][place:]
    assert reward(problem, *changed) <= before + 1e-9
    assert reward(problem, whole[0] + space, space + whole[1]) == pytest.approx(before)


@settings(max_examples=100, deadline=None)
@given(texts(), st.data())
def test_taking_out_a_fact_never_pays(found, data: st.DataObject):
    """All sentences that tell one fact go, in both texts."""
    problem, *sentences = found
    before = work(problem, *map(" ".join, sentences))
    world = world_of(problem)
    fact = data.draw(st.sampled_from(problem.facts))

    def tells(sentence: str) -> bool:
        statement = world.read(sentence)
        return statement is not None and statement.fact == fact and statement.hero in ("", problem.hero)

    kept = [" ".join(each for each in text if not tells(each)) for text in sentences]
    after = work(problem, *kept)
    if sum(tells(each) for text in sentences for each in split_sentences(" ".join(text))) <= 2 and (
        after.reading.coverage < before.reading.coverage
    ):
        assert reward(problem, *kept) < reward(problem, *map(" ".join, sentences))


def test_there_is_no_cliff_between_an_empty_pair_and_the_reference():
    """Telling one fact more raises the reward by about as much everywhere, so groups of texts differ."""
    for problem in problems("summary", 20)[:5]:
        first, second = (split_sentences(text) for text in problem.reference)
        rewards = [
            reward(problem, " ".join(first[:a]), " ".join(second[:b]))
            for a, b in [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2), (2, 3), (2, 4)]
        ]
        steps = [after - before for before, after in itertools.pairwise(rewards)]
        assert min(steps) > 0.35 and max(steps) < 0.6


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", []),
        (" \n ", []),
        ("One. Two! Three? ", ["One.", "Two!", "Three?"]),
        ("Dr. No came. He left", ["Dr. No came.", "He left"]),
        ("It costs 3.5 dollars. Yes.", ["It costs 3.5 dollars.", "Yes."]),
        ('He said "no." Then he left.', ['He said "no."', "Then he left."]),
        ("So do I. You too.", ["So do I.", "You too."]),
        ("By J. Smith e.g. in May. End.", ["By J. Smith e.g. in May.", "End."]),
    ],
)
def test_sentences(text: str, sentences: list[str]):
    assert split_sentences(text) == sentences


@pytest.mark.parametrize(
    ("sentence", "complete"),
    [("It is.", True), ("it is.", False), ("It is", False), ('"It is."', True), ("3 came!", True), ("", False)],
)
def test_complete_sentences(sentence: str, complete: bool):
    assert is_complete(sentence) == complete
