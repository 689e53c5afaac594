"""The published reward of two texts, level by level; each term is a function, and none of them sees the source.

Promises the published values, gates included (a level that is not reached ends the count), with the constants of the
paper and those of later versions.  Known faults, which the audit finds: phrases are found inside of words, white space
counts as length, and a copy of the other text gets full marks.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from math import inf

from pipeline_lib.environments.writing.published.connectives import CONNECTIVES, STOPWORDS

_CATEGORIES = {name: re.compile("|".join(map(re.escape, phrases))) for name, phrases in CONNECTIVES.items()}
_WORD = re.compile(r"\b\w+\b")

#: Weights of connectives and of shared words in the style level.
CONNECTIVE_WEIGHT, SHARED_WEIGHT = 0.4, 0.6

Band = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Constants:
    """The constants of one published form of the reward.

    Attributes:
        words: least and greatest number of words of each text.
        length: ratio of characters, second to first: zero below the first number, full from the second to the third,
            zero above the fourth, linear between.
        unique: the same for the ratio of different words.
        shared: overlap of words (Jaccard) from which on the pay for it is full.
        connectives_in_both: connectives are looked for in both texts joined, else in the second only.
    """

    words: tuple[int, int]
    length: Band
    unique: Band
    shared: float
    connectives_in_both: bool


_SUMMARY = Constants((8, 256), (1.1, 1.6, 3.2, 5.0), (1.3, 2.0, inf, inf), 0.03, connectives_in_both=False)

#: By task and variant; summaries have not changed since the paper.
CONSTANTS = {
    ("summary", "paper"): _SUMMARY,
    ("summary", "later"): _SUMMARY,
    ("introduction", "paper"): Constants(
        (128, 256), (0.8, 1.0, 1.3, 1.5), (0.5, 0.7, 1.3, 1.7), 0.23, connectives_in_both=True
    ),
    ("introduction", "later"): Constants(
        (128, 256), (0.8, 1.3, 1.6, 2.0), (0.5, 0.7, 1.3, 1.7), 0.23, connectives_in_both=True
    ),
}

#: What can be earned at most: all twelve categories are worth .95 of the pay for connectives, not all of it.
GREATEST = 0.5 + 1.0 + 0.5 + CONNECTIVE_WEIGHT * 0.95 + SHARED_WEIGHT


def published_terms(first: str, second: str, constants: Constants) -> dict[str, float]:
    """Return the five terms of the reward; those behind a level that was not passed are 0.

    Returns:
        ``words`` in {0, 0.5}, ``length`` in [0, 1], ``unique`` in [0, 0.5], ``connectives`` in [0, 0.38] and ``shared``
        in [0, 0.6].
    """
    terms = dict.fromkeys(("words", "length", "unique", "connectives", "shared"), 0.0)
    terms["words"] = words_term(first, second, constants.words)
    if not terms["words"]:
        return terms
    length = band(len(second) / len(first), constants.length)
    if length is None:
        return terms
    terms["length"] = length
    unique = unique_ratio(first, second)
    share = band(unique, constants.unique) if unique is not None else None
    if share is None:
        return terms
    terms["unique"] = 0.5 * share
    searched = first + second if constants.connectives_in_both else second
    terms["connectives"] = CONNECTIVE_WEIGHT * connectives_share(len(categories(searched)))
    terms["shared"] = SHARED_WEIGHT * shared_share(overlap(first, second), constants.shared)
    return terms


def words_term(first: str, second: str, limits: tuple[int, int]) -> float:
    """Return 0.5 if both texts have a number of words (by white space) within the limits, else 0."""
    return 0.5 if all(limits[0] <= len(text.split()) <= limits[1] for text in (first, second)) else 0.0


def band(ratio: float, limits: Band) -> float | None:
    """Return the share of a level that a ratio earns.

    ``(ratio - a) / (b - a)`` from a to b, 1 from b to c, ``1 - (ratio - c) / (d - c)`` from c to d, where (a, b, c, d)
    are the limits.

    Returns:
        A share in [0, 1], or None below a or above d: the level is not passed.
    """
    a, b, c, d = limits
    if b <= ratio <= c:
        return 1.0
    if a <= ratio < b:
        return (ratio - a) / (b - a)
    if c < ratio <= d:
        return 1.0 - (ratio - c) / (d - c)
    return None


def unique_ratio(first: str, second: str) -> float | None:
    """Return how many times as many different words the second text has; None if the first has none."""
    own, others = all_words(first), all_words(second)
    return len(others) / len(own) if own else None


def categories(text: str) -> frozenset[str]:
    """Return the categories of connectives of which a phrase occurs anywhere in the text, in lower case."""
    lower = text.lower()
    return frozenset(name for name, phrases in _CATEGORIES.items() if phrases.search(lower))


def connectives_share(found: int) -> float:
    """Return ``min(1, 0.4 + min(0.05 (n - 1), 0.6))`` for n categories found, 0 for none."""
    return min(1.0, 0.4 + min(0.05 * (found - 1), 0.6)) if found else 0.0


def overlap(first: str, second: str) -> float:
    """Return the Jaccard index of the different words without stopwords, in [0, 1]; 1 if neither text has any."""
    own, others = all_words(first) - STOPWORDS, all_words(second) - STOPWORDS
    return len(own & others) / len(own | others) if own or others else 1.0


def shared_share(index: float, cap: float) -> float:
    """Return ``min(J, cap) / cap``."""
    return min(index, cap) / cap


@functools.lru_cache(maxsize=4096)
def all_words(text: str) -> frozenset[str]:
    """Return the different words of a text in lower case."""
    return frozenset(_WORD.findall(text.lower()))
