"""The result of reading two texts; the sound reward and the metrics use nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline_lib.environments.writing.problems.problem import Limits


@dataclass(frozen=True, slots=True)
class Reading:
    """The analysis of two texts about their source.

    A sentence *tells* if it is complete, follows from the source, is no copy of it, and does not repeat its own text.
    Values counted in facts are relative to the number of facts in the source, so none of them rises if a text contains
    less.

    Attributes:
        coverage: share of the facts that are told, in [0, 1].
        unsupported: sentences that state no fact of the source, including copies of it, relative to the facts.
        repeated: sentences that repeat a statement of either text, relative to the facts.
        style: share of the facts that are told in the prevailing style of both texts together, in [0, 1].
        links: share of the possible joints between neighbouring sentences that tell a new fact and
            share an entity, in [0, 1].
        useful_words: words of each text in sentences that state a fact of the source, each fact once.
        words: all words of each text.
        sentences: number of sentences of both texts.
        inventions: share of the sentences that do not follow from the source and are no copies.
        copied: share of the sentences that are copies or repetitions.
        complete: share of the sentences that begin and end as sentences do.
        notes: feedback for each writer on its own text, a line each.
    """

    coverage: float
    unsupported: float
    repeated: float
    style: float
    links: float
    useful_words: tuple[int, int]
    words: tuple[int, int]
    sentences: int
    inventions: float
    copied: float
    complete: float
    notes: tuple[tuple[str, ...], tuple[str, ...]]


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
    found: tuple[list[str], list[str]] = [], []
    for own, count, (least, greatest) in zip(found, words, (limits.first, limits.second), strict=True):
        if not least <= count <= greatest:
            own.append(f"{count} words; it should be {least} to {greatest}")
    return found
