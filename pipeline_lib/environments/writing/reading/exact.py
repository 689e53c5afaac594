"""Reads texts about a generated source: every sentence states a fact of the source, another fact, or none."""

from __future__ import annotations

import re
from functools import lru_cache

from pipeline_lib.environments.writing.problems.problem import WritingProblem
from pipeline_lib.environments.writing.problems.world import TENSES, Statement
from pipeline_lib.environments.writing.problems.worlds import WORLDS
from pipeline_lib.environments.writing.reading.reading import Reading, length_notes
from pipeline_lib.environments.writing.reading.sentences import is_complete, split_sentences

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
    unsupported = repeated = copied = incomplete = links = sentences = 0
    words, useful = [0, 0], [0, 0]
    notes = length_notes((len(first.split()), len(second.split())), problem.limits)
    for number, text in enumerate((first, second)):
        own: set[object] = set()
        previous: Statement | None = None
        wrong = again = taken = 0
        for sentence in split_sentences(text):
            sentences += 1
            words[number] += len(sentence.split())
            statement = _state(problem.world, sentence)
            here, previous = previous, None
            if statement is None:
                incomplete += not is_complete(sentence)
                copies = _is_copy(sentence, problem.text)
                copied += copies
                taken += copies
                wrong += not copies
            elif statement.fact not in facts or statement.hero not in ("", problem.hero):
                wrong += 1
            elif statement.fact in own:
                again += 1
            else:
                own.add(statement.fact)
                styles[statement.tense].add(statement.fact)
                useful[number] += statement.words
                if statement.fact in told_before:
                    repeated += 1
                else:
                    links += here is not None and not here.entities.isdisjoint(statement.entities)
                    previous = statement
        told_before |= own
        unsupported += wrong + taken
        repeated += again
        part = problem.parts[number]
        notes[number].insert(0, f"facts told: {sum(problem.facts[i] in own for i in part)} of {len(part)}")
        if wrong:
            notes[number].append(f"sentences that do not follow from what you saw: {wrong}")
        if again or taken:
            notes[number].append(f"sentences that are copied or said twice: {again + taken}")
    count = len(facts)
    return Reading(
        coverage=len(told_before) / count,
        unsupported=unsupported / count,
        repeated=repeated / count,
        style=max(map(len, styles.values())) / count,
        links=min(1.0, links / (count - 2)),
        useful_words=(useful[0], useful[1]),
        words=(words[0], words[1]),
        sentences=sentences,
        inventions=(unsupported - copied) / sentences if sentences else 0.0,
        copied=(repeated + copied) / sentences if sentences else 0.0,
        complete=1.0 - incomplete / sentences if sentences else 0.0,
        notes=(tuple(notes[0]), tuple(notes[1])),
    )
