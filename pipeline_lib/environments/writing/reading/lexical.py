"""Read texts about a published source, whose facts are not known, by its content words.

The facts of a source are its most frequent words, without stopwords and suffixes.  A sentence follows from the source
to the degree that its own content words occur there and that its share of function words is that of English; it is a
copy if eight words in a row are the source's.  This is an approximation: it detects inventions, lists of keywords,
copies and repetitions, but not a false claim in words of the source.  Generated sources are read exactly (`exact`).
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from math import fsum, sqrt

from pipeline_lib.environments.writing.problems.problem import WritingProblem
from pipeline_lib.environments.writing.published.connectives import STOPWORDS
from pipeline_lib.environments.writing.reading.reading import Reading, length_notes
from pipeline_lib.environments.writing.reading.sentences import is_complete, split_sentences

_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")
_ENDINGS = ("ings", "ing", "edly", "ed", "ies", "es", "ly", "s")

#: Words of a source that count as its facts, and sentences that would tell them.
FACTS, SENTENCES = 24, 8
#: This many consecutive words of the source are a copy of it.
RUN = 8
#: Share of small words below which a sentence is a list.
SMALL = 0.25
#: Share of a sentence's words that its own text has used before from which on it says nothing new.
OLD = 0.8


def read_by_words(problem: WritingProblem, first: str, second: str) -> Reading:
    """Return the analysis of two texts about a published source."""
    known, facts, runs = _source(problem.text)
    told_words: dict[str, float] = {}
    unsupported = 0.0
    repeated = copied = links = sentences = complete = 0
    useful, words = [0.0, 0.0], [0, 0]
    notes = length_notes((len(first.split()), len(second.split())), problem.limits)
    everything: set[str] = set()
    for number, text in enumerate((first, second)):
        previous: frozenset[str] = frozenset()
        wrong = 0.0
        again = taken = 0
        for sentence in split_sentences(text):
            sentences += 1
            small, content, all_words = _content(sentence)
            words[number] += len(sentence.split())
            whole = is_complete(sentence) and bool(content)
            complete += whole
            if any(tuple(all_words[i : i + RUN]) in runs for i in range(len(all_words) - RUN + 1)):
                taken += 1
                previous = frozenset()
                continue
            if content and len(content & everything) >= OLD * len(content):
                again += 1
                previous = frozenset()
                continue
            follows = min(1.0, small / SMALL) * len(content & known) / len(content) if whole else 0.0
            wrong += 1.0 - follows
            useful[number] += follows * len(sentence.split())
            links += follows >= 0.5 and not previous.isdisjoint(content)
            previous = content if follows >= 0.5 else frozenset()
            for word in content & facts:
                told_words[word] = max(told_words.get(word, 0.0), follows)
            everything |= content
        unsupported += wrong + taken
        repeated += again
        copied += taken
        if wrong >= 1:
            notes[number].append(f"sentences that do not follow from the text: about {round(wrong)}")
        if again or taken:
            notes[number].append(f"sentences that are copied or said twice: {again + taken}")
    coverage = fsum(told_words.values()) / max(1, len(facts))  # exact, so the order of a set does not matter
    return Reading(
        coverage=coverage,
        unsupported=unsupported / SENTENCES,
        repeated=repeated / SENTENCES,
        style=coverage * _likeness(first, second),
        links=min(1.0, links / (SENTENCES - 2)),
        useful_words=(round(useful[0]), round(useful[1])),
        words=(words[0], words[1]),
        sentences=sentences,
        inventions=(unsupported - copied) / sentences if sentences else 0.0,
        copied=(repeated + copied) / sentences if sentences else 0.0,
        complete=complete / sentences if sentences else 0.0,
        notes=(tuple(notes[0]), tuple(notes[1])),
    )


@lru_cache(maxsize=4096)
def _source(text: str) -> tuple[frozenset[str], frozenset[str], frozenset[tuple[str, ...]]]:
    """Return the words that carry meaning, the facts among them, and all runs of words of a source."""
    all_words = _WORD.findall(text.lower())
    counts = Counter(_stem(word) for word in all_words if word not in STOPWORDS and len(word) > 2)
    facts = frozenset(word for word, _ in counts.most_common(FACTS))
    runs = frozenset(tuple(all_words[i : i + RUN]) for i in range(len(all_words) - RUN + 1))
    return frozenset(counts), facts, runs


def _content(sentence: str) -> tuple[float, frozenset[str], list[str]]:
    """Return the share of small words, the words that carry meaning, and all words."""
    words = _WORD.findall(sentence.lower())
    content = [word for word in words if word not in STOPWORDS and len(word) > 2]
    return 1.0 - len(content) / max(1, len(words)), frozenset(map(_stem, content)), words


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def _likeness(first: str, second: str) -> float:
    """Return the cosine of the function word counts of two texts, in [0, 1] (as in Burrows' stylometry)."""
    counts = [Counter(word for word in _WORD.findall(text.lower()) if word in STOPWORDS) for text in (first, second)]
    product = sum(count * counts[1][word] for word, count in counts[0].items())
    norms = [sqrt(sum(count**2 for count in own.values())) for own in counts]
    return product / (norms[0] * norms[1]) if all(norms) else 0.0
