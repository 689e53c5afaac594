"""The published reward of two texts (arXiv 2508.04652), kept for comparison, level by level; it never sees the source.

Promises the published values, gates included (a level that is not reached ends the count), with the constants of the
paper and those of later versions.  Known faults, which the audit finds: phrases are found inside of words, white space
counts as length, and a copy of the other text gets full marks.

The published list of connectives (LLM_Collab_Writing) has 279 entries; a phrase may stand in several categories, and is
looked for anywhere in the text, inside of words too.  A phrase that contains another one of its category can therefore
never decide anything, so those are left out here: 266 entries remain, with the same categories found in every text.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from math import inf

#: Phrases by their categories.
_BY_CATEGORIES = {
    "cause_effect": (
        "accordingly; as a consequence; as a result; because of this; consequently; due to this; ergo; hence; "
        "in consequence; it follows that; on account of; owing to; resulting from; so; thanks to; thereby; "
        "therefore; this brings about; this causes; this leads to; this results in; thus; wherefore"
    ),
    "cause_effect sequence": "then",
    "comparison": (
        "along the same lines; as with; by analogy; comparable to; equally; in comparison; in similar "
        "fashion; just as; just like; much like"
    ),
    "concession": "despite; even if; in spite of; regardless of; though",
    "condition": (
        "as long as; assuming that; given that; had; if; in case; in the event that; on condition that; or "
        "else; provided that; should; so long as; supposing that; unless; were; whether or not"
    ),
    "contrast": (
        "alternatively; although; at any rate; but; by contrast; contrarily; conversely; despite this; even "
        "so; even though; in any case; in contrast; in opposition; instead; on the contrary; on the other "
        "hand; rather; regardless"
    ),
    "contrast concession": (
        "all the same; be that as it may; however; nevertheless; nonetheless; notwithstanding; still; whereas; yet"
    ),
    "contrast concession time": "while",
    "contrast condition": "otherwise",
    "elaboration": (
        "additionally; along with; also; as well as; besides; comparatively; coupled with; equally important; "
        "furthermore; in addition; moreover; not only; together with; what is more"
    ),
    "elaboration comparison": (
        "analogously; by the same token; correspondingly; in like manner; in the same way; likewise; similarly"
    ),
    "emphasis": (
        "absolutely; as a matter of fact; certainly; definitely; evidently; indubitably; manifestly; "
        "naturally; of course; positively; significantly; surely; to be sure; undeniably; undoubtedly; "
        "unquestionably; without doubt"
    ),
    "emphasis concession": "admittedly; granted",
    "examples": (
        "above all; as an illustration; as evidence; case in point; chiefly; especially; for example; for "
        "instance; in particular; including; mainly; markedly; most importantly; namely; particularly; "
        "specifically; such as; to demonstrate; to exemplify; to illustrate"
    ),
    "examples emphasis": "notably",
    "examples sequence": "primarily",
    "explanation": (
        "actually; at its core; in other words; more precisely; simply put; specifically speaking; stated "
        "differently; that is; the point is; to clarify; to put it another way; to put it simply; to "
        "rephrase; what this means is"
    ),
    "explanation emphasis": "clearly; in fact; indeed; obviously",
    "explanation summary": "basically; essentially; fundamentally; in essence",
    "sequence": (
        "after that; afterward; at the outset; concurrently; first; following this; in the beginning; in the "
        "meantime; initially; lastly; meanwhile; next; second; third; to begin with; to start with"
    ),
    "sequence summary": "in conclusion; in summary; in the end; to conclude; to summarize; ultimately",
    "sequence time": "at the same time; finally; later; simultaneously; subsequently",
    "summary": (
        "after all; all in all; briefly; in brief; in short; in the final analysis; on the whole; overall; "
        "the bottom line is; to sum up; when all is said and done"
    ),
    "time": (
        "after; as; before; currently; during; earlier; eventually; formerly; immediately; lately; nowadays; "
        "presently; previously; recently; since; until; when"
    ),
}

#: The phrases of each category.
CONNECTIVES: dict[str, tuple[str, ...]] = {}
for _categories, _phrases in _BY_CATEGORIES.items():
    for _category in _categories.split():
        CONNECTIVES[_category] = (*CONNECTIVES.get(_category, ()), *_phrases.split("; "))

_STOPWORDS = (
    "a all also an and any are as at bad be been being both but by can could did do does each few first for "
    "from good great had has have he her here him his how i if in is it its just last left little long low "
    "many may me might more most much must my new no not now of old on only or other our own right same shall "
    "should so some such than that the their them then there these they this those to too us very was we were "
    "what when where which who why will with would you your"
)

#: Words that do not count for the overlap of two texts.
STOPWORDS = frozenset(_STOPWORDS.split())


_CATEGORIES = {name: re.compile("|".join(map(re.escape, phrases))) for name, phrases in CONNECTIVES.items()}
_WORD = re.compile(r"\b\w+\b")

#: Weights of connectives and of shared words in the style level.
CONNECTIVE_WEIGHT, SHARED_WEIGHT = 0.4, 0.6

Band = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Constants:
    """The constants of one published form of the reward."""

    words: tuple[int, int]  #: least and greatest number of words of each text
    #: Ratio of characters, second to first: zero below the first number, full from the second to the third, zero above
    #: the fourth, linear between.
    length: Band
    unique: Band  #: the same for the ratio of different words
    shared: float  #: overlap of words (Jaccard) from which on the pay for it is full
    connectives_in_both: bool  #: connectives are looked for in both texts joined, else in the second only


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
    words, others = all_words(first), all_words(second)
    return len(others) / len(words) if words else None


def categories(text: str) -> frozenset[str]:
    """Return the categories of connectives of which a phrase occurs anywhere in the text, in lower case."""
    lower = text.lower()
    return frozenset(name for name, phrases in _CATEGORIES.items() if phrases.search(lower))


def connectives_share(count: int) -> float:
    """Return ``min(1, 0.4 + min(0.05 (n - 1), 0.6))`` for n categories found, 0 for none."""
    return min(1.0, 0.4 + min(0.05 * (count - 1), 0.6)) if count else 0.0


def overlap(first: str, second: str) -> float:
    """Return the Jaccard index of the different words without stopwords, in [0, 1]; 1 if neither text has any."""
    words, others = all_words(first) - STOPWORDS, all_words(second) - STOPWORDS
    return len(words & others) / len(words | others) if words or others else 1.0


def shared_share(index: float, cap: float) -> float:
    """Return ``min(J, cap) / cap``."""
    return min(index, cap) / cap


@functools.lru_cache(maxsize=4096)
def all_words(text: str) -> frozenset[str]:
    """Return the different words of a text in lower case."""
    return frozenset(_WORD.findall(text.lower()))
