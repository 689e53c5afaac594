"""The published reward: golden values worked out by hand from its definition, and the most that it pays."""

import itertools
from math import inf

import pytest

from pipeline_lib.environments.writing import published as levels
from pipeline_lib.environments.writing.audit import ALL_CATEGORIES, HIDDEN
from pipeline_lib.environments.writing.published import CONNECTIVES, CONSTANTS, GREATEST, STOPWORDS, published_terms

SUMMARY = CONSTANTS["summary", "paper"]
EARLY, LATER = CONSTANTS["introduction", "paper"], CONSTANTS["introduction", "later"]


def words(count: int, length: int = 3, first: int = 0) -> str:
    """Return ``count`` different words of ``length`` letters in which no connective can hide."""
    letters = "bcdgkpqvxz"
    found = ("".join(word) for word in itertools.product(letters, repeat=length))
    return " ".join(itertools.islice(found, first, first + count))


def total(first: str, second: str, constants: levels.Constants) -> float:
    return sum(published_terms(first, second, constants).values())


def test_the_twelve_categories_have_the_published_sizes_less_what_contains_another_phrase():
    sizes = {name: len(phrases) for name, phrases in CONNECTIVES.items()}
    assert len(sizes) == 12 and len(STOPWORDS) == 106
    published = {
        "elaboration": 21, "examples": 22, "explanation": 22, "cause_effect": 26, "contrast": 29, "sequence": 33,
        "emphasis": 24, "summary": 21, "comparison": 17, "concession": 19, "condition": 19, "time": 26,
    }  # fmt: skip
    assert sizes.keys() == published.keys()
    assert all(0 <= published[name] - size <= 4 for name, size in sizes.items())
    for phrases in CONNECTIVES.values():
        assert not [(a, b) for a, b in itertools.permutations(phrases, 2) if a in b], "one of the two decides nothing"


@pytest.mark.parametrize(
    ("ratio", "limits", "expected"),
    [
        (1.6, SUMMARY.length, 1.0),
        (3.2, SUMMARY.length, 1.0),
        (1.35, SUMMARY.length, 0.5),  # half of the way from 1.1 to 1.6
        (4.1, SUMMARY.length, 0.5),  # half of the way from 3.2 to 5.0
        (1.1, SUMMARY.length, 0.0),
        (1.0999, SUMMARY.length, None),
        (5.0001, SUMMARY.length, None),
        (1.65, SUMMARY.unique, 0.5),
        (40.0, SUMMARY.unique, 1.0),
        (1.29, SUMMARY.unique, None),
        (1.2, EARLY.length, 1.0),
        (0.9, EARLY.length, 0.5),
        (1.4, EARLY.length, 0.5),
        (1.47, EARLY.length, 0.15),
        (1.51, EARLY.length, None),
        (1.47, LATER.length, 1.0),
        (1.05, LATER.length, 0.5),
        (1.8, LATER.length, 0.5),
        (2.01, LATER.length, None),
        (0.6, LATER.unique, 0.5),
        (1.5, EARLY.unique, 0.5),
        (0.49, EARLY.unique, None),
    ],
)
def test_a_level_rises_and_falls_between_its_limits(ratio, limits, expected):
    assert levels.band(ratio, limits) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("found", "share"), [(0, 0.0), (1, 0.4), (2, 0.45), (4, 0.55), (7, 0.7), (11, 0.9), (12, 0.95)]
)
def test_categories_are_worth_less_and_less(found, share):
    assert levels.connectives_share(found) == pytest.approx(share)


def test_phrases_are_found_inside_of_words():
    assert levels.categories(HIDDEN) == {"cause_effect", "time", "condition", "concession"}
    assert levels.categories("Nobody knows it.") == set()
    assert len(levels.categories(ALL_CATEGORIES)) == 12
    assert levels.categories("WHILE") == {"contrast", "concession", "time"}


@pytest.mark.parametrize(
    ("first", "second", "index"),
    [
        ("", "", 1.0),
        ("the of", "and", 1.0),
        ("cat", "", 0.0),
        ("the cat sat", "a cat ran", 1 / 3),
        ("Cat cat CAT", "cat", 1.0),
    ],
)
def test_overlap_leaves_stopwords_out(first, second, index):
    assert levels.overlap(first, second) == pytest.approx(index)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (words(7), words(20), 0.0),  # too few words
        (words(8), words(8), 0.5),  # 31 characters each: a ratio of 1 ends the count
        (words(8), words(10, 4), 0.5 + (49 / 31 - 1.1) / 0.5),  # unique 1.25: no more than the length pays
        (words(10), words(15, 4, 0), 1.0 + 0.5 + 0.5 * 2 / 7),  # 74 / 39, unique 1.5: two sevenths of .5
        (words(10), words(20), 0.5 + 1.0 + 0.5 + 0.6),  # all of the first are in the second: J = 10/20
        (words(10), words(20, 3, 100), 0.5 + 1.0 + 0.5),  # nothing shared
        (words(10), words(20, 3, 100) + " so", 0.5 + 1.0 + 0.5 + 0.4 * 0.4),
        (words(100), words(200, 3, 98), 2.0 + 0.6 * (2 / 298) / 0.03),  # J = .0067
        (words(257), words(257, 6), 0.0),
    ],
)
def test_summaries_earn_what_was_worked_out_by_hand(first, second, expected):
    assert total(first, second, SUMMARY) == pytest.approx(expected)
    assert total(first, second, CONSTANTS["summary", "later"]) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("first", "second", "early", "later"),
    [
        (words(127), words(130), 0.0, 0.0),
        # 519 / 511 characters: full then; now (519/511 - .8) / .5; unique 130/128; J = 128/130
        (words(128), words(130), 2.0 + 0.6, 1.0 + 0.6 + (519 / 511 - 0.8) / 0.5),
        # 128 and 188 words of three letters: 751 / 511 = 1.4697: (1.5 - q) / .2 then, full now; unique 1.469 in both
        (
            words(128),
            words(188),
            0.5 + 1 - (751 / 511 - 1.3) / 0.2 + 0.5 * (1 - (188 / 128 - 1.3) / 0.4) + 0.6,
            0.5 + 1.0 + 0.5 * (1 - (188 / 128 - 1.3) / 0.4) + 0.6,
        ),
        # one text twice: nothing but the connectives is missing
        (words(128), words(128), 2.6, 0.5 + 0.4 + 0.5 + 0.6),
    ],
)
def test_introductions_earn_what_was_worked_out_by_hand(first, second, early, later):
    assert total(first, second, EARLY) == pytest.approx(early)
    assert total(first, second, LATER) == pytest.approx(later)


def test_connectives_of_an_introduction_are_looked_for_in_both_texts_even_across_their_joint():
    first, second = words(128), words(130)
    assert total(first + " so", second, EARLY) == pytest.approx(2.6 + 0.16)
    assert total(first + "a", "s" + second[1:], EARLY) == pytest.approx(2.6 + 0.16, abs=0.02)  # "a" + "s"


def test_white_space_counts_as_length():
    first = words(10)
    assert published_terms(first, words(20, 3, 100), SUMMARY)["length"] == 1.0
    assert published_terms(first + " " * 200, words(20, 3, 100), SUMMARY)["length"] == 0.0


def test_nonsense_reaches_the_most_there_is_and_so_does_a_copy():
    first = "blark blemp bland blorv gnozt gnurk kvaze kvemp"
    assert total(first, f"blark blemp {ALL_CATEGORIES}", SUMMARY) == pytest.approx(2.98)
    copy = f"{words(122)} {ALL_CATEGORIES}"
    assert total(copy, copy, EARLY) == pytest.approx(2.98)
    assert total(copy, copy, LATER) == pytest.approx(2.38)
    # the same text again and a part of it once more, until q is 1.39
    longer = f"{copy} {copy}"[: int(1.39 * len(copy))]
    assert total(copy, longer, LATER) == pytest.approx(2.98)


def test_no_value_of_what_the_reward_sees_pays_more_than_the_greatest():
    """All terms depend on four numbers; search them all, at their corners and in between."""
    best = 0.0
    for constants in set(CONSTANTS.values()):
        corners = [x for x in (*constants.length, *constants.unique) if x != inf] + [1.2, 2.5, 10.0]
        for q, u in itertools.product(corners, repeat=2):
            length, unique = levels.band(q, constants.length), levels.band(u, constants.unique)
            if length is None or unique is None:
                continue
            for found, index in itertools.product(range(13), (0.0, 0.01, 0.03, 0.23, 1.0)):
                style = 0.4 * levels.connectives_share(found) + 0.6 * levels.shared_share(index, constants.shared)
                best = max(best, 0.5 + length + 0.5 * unique + style)
    assert best == pytest.approx(GREATEST) == pytest.approx(2.98)
