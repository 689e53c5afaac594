"""How two texts are compared with their source: exactly for a generated source, by words for a published one.

The sound reward and the metrics use nothing but the result (`Reading`).

*Exactly*: every sentence states a fact of the source, another fact, or none.

*By words*: the facts of a source are its most frequent words, without stopwords and suffixes.  A sentence follows from
the source to the degree that its own content words occur there and that its share of function words is that of English;
it is a copy if eight words in a row are the source's.  This is an approximation: it detects inventions, lists of
keywords, copies and repetitions, but not a false claim in words of the source.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from math import fsum, sqrt

from pipeline_lib.environments.writing.problem import Limits, WritingProblem
from pipeline_lib.environments.writing.published import STOPWORDS
from pipeline_lib.environments.writing.world import TENSES, WORLDS, Statement

_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+")
_SHORT_FORM = re.compile(r"(?:\b(?i:mr|mrs|ms|dr|prof|e\.g|i\.e|etc|vs|fig|eq|cf|al|approx)|\b[A-Z])\.$")


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text, without white space around them; empty ones are left out."""
    if _END.search(text) is None:
        return [text.strip()] if text.strip() else []
    sentences: list[str] = []
    start = 0
    for end in _END.finditer(text):
        sentence = text[start : end.start()]
        if _ends_short(sentence):
            continue
        sentences.append(text[start : end.end()].strip())
        start = end.end()
    sentences.append(text[start:].strip())
    return [sentence for sentence in sentences if sentence]


def is_complete(sentence: str) -> bool:
    """Return whether a sentence begins with a capital letter or a digit and ends with a mark."""
    ends = sentence.rstrip("\"')]")
    start = sentence.lstrip("\"'([")[:1]
    return ends[-1:] in (".", "!", "?") and (start.isupper() or start.isdigit())


def _ends_short(sentence: str) -> bool:
    short_form = _SHORT_FORM.search(sentence[-12:])
    return short_form is not None and short_form[0] != "I."


@dataclass(frozen=True, slots=True)
class Reading:
    """The analysis of two texts about their source.

    A sentence *tells* if it is complete, follows from the source, is no copy of it, and does not repeat its own text.
    Values counted in facts are relative to the number of facts in the source, so none of them rises if a text contains
    less.
    """

    coverage: float  #: share of the facts that are told, in [0, 1]
    unsupported: float  #: sentences that state no fact of the source, including copies of it, relative to the facts
    repeated: float  #: sentences that repeat a statement of either text, relative to the facts
    style: float  #: share of the facts that are told in the prevailing style of both texts together, in [0, 1]
    #: Share of the possible joints between neighbouring sentences that tell a new fact and share an entity, in [0, 1].
    links: float
    useful_words: tuple[int, int]  #: words of each text in sentences that state a fact of the source, each fact once
    words: tuple[int, int]  #: all words of each text
    sentences: int  #: number of sentences of both texts
    inventions: float  #: share of the sentences that do not follow from the source and are no copies
    copied: float  #: share of the sentences that are copies or repetitions
    complete: float  #: share of the sentences that begin and end as sentences do
    notes: tuple[tuple[str, ...], tuple[str, ...]]  #: feedback for each writer on its own text, a line each


@dataclass(slots=True)
class _Tally:
    """What is counted while both texts are read; see `Reading`."""

    notes: tuple[list[str], list[str]]
    unsupported: float = 0.0
    repeated: int = 0
    copied: int = 0
    links: int = 0
    sentences: int = 0
    useful: list[float] = field(default_factory=lambda: [0.0, 0.0])
    words: list[int] = field(default_factory=lambda: [0, 0])

    def reading(self, facts: int, coverage: float, style: float, complete: float) -> Reading:
        """Return the analysis of texts whose source has this number of facts, or of sentences that would tell them."""
        sentences = self.sentences
        return Reading(
            coverage=coverage,
            unsupported=self.unsupported / facts,
            repeated=self.repeated / facts,
            style=style,
            links=min(1.0, self.links / (facts - 2)),
            useful_words=(round(self.useful[0]), round(self.useful[1])),
            words=(self.words[0], self.words[1]),
            sentences=sentences,
            inventions=(self.unsupported - self.copied) / sentences if sentences else 0.0,
            copied=(self.repeated + self.copied) / sentences if sentences else 0.0,
            complete=complete,
            notes=(tuple(self.notes[0]), tuple(self.notes[1])),
        )


def length_share(useful: int, words: int, limits: tuple[int, int]) -> float:
    """Return how well a length fits, in [0, 1].

    ``min(1, useful / least) * max(0, 1 - max(0, words - greatest) / greatest)``: only words that tell make a text long
    enough, every word makes it too long.
    """
    least, greatest = limits
    return min(1.0, useful / least) * max(0.0, 1.0 - max(0, words - greatest) / greatest)


def ratio_share(useful: tuple[int, int], words: tuple[int, int], limits: tuple[float, float]) -> float:
    """Return how well the second length fits the first, in [0, 1].

    Its useful words, relative to all words of the first text, make the second text long enough.  All of
    its words, relative to the useful words of the first, make it too long.  So useless words never help.
    """
    least, greatest = limits
    if not words[0] or not useful[0]:
        return 0.0
    return min(1.0, useful[1] / words[0] / least) * max(0.0, 1.0 - max(0.0, words[1] / useful[0] / greatest - 1.0))


def lengths_fit(words: tuple[int, int], limits: Limits) -> bool:
    """Return whether the lengths of both texts and their ratio are within the limits."""
    (a, b), (c, d), (e, f) = limits.first, limits.second, limits.ratio
    return a <= words[0] <= b and c <= words[1] <= d and e <= words[1] / words[0] <= f


def length_notes(words: tuple[int, int], limits: Limits) -> tuple[list[str], list[str]]:
    """Return the feedback for each writer on its own length."""
    notes: tuple[list[str], list[str]] = [], []
    for told, count, (least, greatest) in zip(notes, words, (limits.first, limits.second), strict=True):
        if not least <= count <= greatest:
            told.append(f"{count} words; it should be {least} to {greatest}")
    return notes


_WORD = re.compile(r"\w+")

#: This many consecutive words of the source are a copy of it.
RUN = 4


@lru_cache(maxsize=65536)
def _state(world: str, sentence: str) -> Statement | None:
    return WORLDS[world].read(sentence)


@lru_cache(maxsize=4096)
def _runs(text: str) -> frozenset[tuple[str, ...]]:
    """Return all runs of `RUN` words, and shorter source lines as a whole."""
    lines = [tuple(_WORD.findall(line.lower())) for line in re.split(r"[;:.]", text)]
    runs = {line[i : i + RUN] for line in lines for i in range(len(line) - RUN + 1)}
    return frozenset(runs | {line for line in lines if 1 < len(line) < RUN})


def _is_copy(sentence: str, source: str) -> bool:
    words = tuple(_WORD.findall(sentence.lower()))
    runs = _runs(source)
    return words in runs or any(words[i : i + RUN] in runs for i in range(len(words) - RUN + 1))


def read_exactly(problem: WritingProblem, first: str, second: str) -> Reading:
    """Return the analysis of two texts about a generated source."""
    facts = frozenset(problem.facts)
    styles: dict[str, set[object]] = {tense: set() for tense in TENSES}
    told_before: set[object] = set()
    incomplete = 0
    tally = _Tally(length_notes((len(first.split()), len(second.split())), problem.limits))
    for number, text in enumerate((first, second)):
        told_here: set[object] = set()
        previous: Statement | None = None
        wrong = again = taken = 0
        for sentence in split_sentences(text):
            tally.sentences += 1
            tally.words[number] += len(sentence.split())
            statement = _state(problem.world, sentence)
            here, previous = previous, None
            if statement is None:
                incomplete += not is_complete(sentence)
                copies = _is_copy(sentence, problem.text)
                tally.copied += copies
                taken += copies
                wrong += not copies
            elif statement.fact not in facts or statement.hero not in ("", problem.hero):
                wrong += 1
            elif statement.fact in told_here:
                again += 1
            else:
                told_here.add(statement.fact)
                styles[statement.tense].add(statement.fact)
                tally.useful[number] += statement.words
                if statement.fact in told_before:
                    tally.repeated += 1
                else:
                    tally.links += here is not None and not here.entities.isdisjoint(statement.entities)
                    previous = statement
        told_before |= told_here
        tally.unsupported += wrong + taken
        tally.repeated += again
        part = problem.parts[number]
        tally.notes[number].insert(0, f"facts told: {sum(problem.facts[i] in told_here for i in part)} of {len(part)}")
        if wrong:
            tally.notes[number].append(f"sentences that do not follow from what you saw: {wrong}")
        if again or taken:
            tally.notes[number].append(f"sentences that are copied or said twice: {again + taken}")
    complete = 1.0 - incomplete / tally.sentences if tally.sentences else 0.0
    count = len(facts)
    return tally.reading(count, len(told_before) / count, max(map(len, styles.values())) / count, complete)


_LEXICAL_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")
_ENDINGS = ("ings", "ing", "edly", "ed", "ies", "es", "ly", "s")

#: Words of a source that count as its facts, and sentences that would tell them.
FACTS, SENTENCES = 24, 8
#: This many consecutive words of the source are a copy of it.
LEXICAL_RUN = 8
#: Share of small words below which a sentence is a list.
SMALL = 0.25
#: Share of a sentence's words that its own text has used before from which on it says nothing new.
OLD = 0.8


def read_by_words(problem: WritingProblem, first: str, second: str) -> Reading:
    """Return the analysis of two texts about a published source."""
    source_words, facts, runs = _source(problem.text)
    told_words: dict[str, float] = {}
    complete = 0
    tally = _Tally(length_notes((len(first.split()), len(second.split())), problem.limits))
    everything: set[str] = set()
    for number, text in enumerate((first, second)):
        previous: frozenset[str] = frozenset()
        wrong = 0.0
        again = taken = 0
        for sentence in split_sentences(text):
            tally.sentences += 1
            small, content, all_words = _content(sentence)
            tally.words[number] += len(sentence.split())
            whole = is_complete(sentence) and bool(content)
            complete += whole
            if any(tuple(all_words[i : i + LEXICAL_RUN]) in runs for i in range(len(all_words) - LEXICAL_RUN + 1)):
                taken += 1
                previous = frozenset()
                continue
            if content and len(content & everything) >= OLD * len(content):
                again += 1
                previous = frozenset()
                continue
            follows = min(1.0, small / SMALL) * len(content & source_words) / len(content) if whole else 0.0
            wrong += 1.0 - follows
            tally.useful[number] += follows * len(sentence.split())
            tally.links += follows >= 0.5 and not previous.isdisjoint(content)
            previous = content if follows >= 0.5 else frozenset()
            for word in content & facts:
                told_words[word] = max(told_words.get(word, 0.0), follows)
            everything |= content
        tally.unsupported += wrong + taken
        tally.repeated += again
        tally.copied += taken
        if wrong >= 1:
            tally.notes[number].append(f"sentences that do not follow from the text: about {round(wrong)}")
        if again or taken:
            tally.notes[number].append(f"sentences that are copied or said twice: {again + taken}")
    coverage = fsum(told_words.values()) / max(1, len(facts))  # exact, so the order of a set does not matter
    whole_sentences = complete / tally.sentences if tally.sentences else 0.0
    return tally.reading(SENTENCES, coverage, coverage * _likeness(first, second), whole_sentences)


@lru_cache(maxsize=4096)
def _source(text: str) -> tuple[frozenset[str], frozenset[str], frozenset[tuple[str, ...]]]:
    """Return the words that carry meaning, the facts among them, and all runs of words of a source."""
    all_words = _LEXICAL_WORD.findall(text.lower())
    counts = Counter(_stem(word) for word in all_words if word not in STOPWORDS and len(word) > 2)
    facts = frozenset(word for word, _ in counts.most_common(FACTS))
    runs = frozenset(tuple(all_words[i : i + LEXICAL_RUN]) for i in range(len(all_words) - LEXICAL_RUN + 1))
    return frozenset(counts), facts, runs


def _content(sentence: str) -> tuple[float, frozenset[str], list[str]]:
    """Return the share of small words, the words that carry meaning, and all words."""
    words = _LEXICAL_WORD.findall(sentence.lower())
    content = [word for word in words if word not in STOPWORDS and len(word) > 2]
    return 1.0 - len(content) / max(1, len(words)), frozenset(map(_stem, content)), words


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def _likeness(first: str, second: str) -> float:
    """Return the cosine of the function word counts of two texts, in [0, 1] (as in Burrows' stylometry)."""
    counts = [
        Counter(word for word in _LEXICAL_WORD.findall(text.lower()) if word in STOPWORDS) for text in (first, second)
    ]
    product = sum(count * counts[1][word] for word, count in counts[0].items())
    norms = [sqrt(sum(count**2 for count in counter.values())) for counter in counts]
    return product / (norms[0] * norms[1]) if all(norms) else 0.0


def read(problem: WritingProblem, first: str, second: str) -> Reading:
    """Return the analysis of two texts about the problem's source."""
    return (read_exactly if problem.world else read_by_words)(problem, first, second)
