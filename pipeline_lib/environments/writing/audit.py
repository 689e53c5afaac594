"""The audit of a writing reward: scripted writers; some tell the facts of the source, most only pretend to.

All texts go through `Environment.step` like the actions of a policy.  The list contains texts that mislead the
published reward (nonsense with connectives, a copy of the other text, phrases inside words, white space), in lengths
that it accepts: its greatest value is reached without the source.
"""

from __future__ import annotations

import itertools
from typing import Any

from pipeline_lib.audit.examiner import ScriptedExaminer, Teams
from pipeline_lib.environments.writing.problem import WritingProblem
from pipeline_lib.environments.writing.world import WORLDS, write

#: A connective of each published category, and words in whose inside some are found.
ALL_CATEGORIES = (
    "Moreover, for example, that is, thus, however, first, indeed, overall, equally, although, if so, when."
)
HIDDEN = "The person was specific and thoughtful about class content shadows."

#: Words that no source uses, all different.
NONSENSE = [
    a + b + c for a, b, c in itertools.product(("bl", "tr", "kv", "gn"), "aeou", ("rk", "mp", "nd", "lv", "zt"))
]


def nonsense_with_connectives(problem: WritingProblem) -> list[str]:
    """Return the two texts of nonsense that earn the most that the published reward pays, whatever the source says."""
    if problem.task == "summary":
        shared = NONSENSE[:2]
        return [_words(NONSENSE, 8), f"{' '.join(shared)} {ALL_CATEGORIES}"]
    first = [*NONSENSE * 2][:130]
    return [" ".join(first), " ".join([*first[:116], *ALL_CATEGORIES.split()])]


def _about(problem: WritingProblem, other: WritingProblem) -> dict[str, tuple[str, list[str]]]:
    """Return writers that use statements: of this source, of another, too few or too many of them."""
    world, hero, facts = WORLDS[problem.world], problem.hero, list(problem.facts)
    first, second = problem.reference
    everything = write(world, hero, facts)
    return {
        "reference": ("working", [first, second]),
        "reference_present": ("working", [_present(problem, text) for text in (first, second)]),
        "shared_fact_left_out": ("other", [first, write(world, hero, [facts[i] for i in problem.parts[1][1:]])]),
        "both_tell_all_they_see": (
            "other",
            [write(world, hero, [facts[i] for i in part]) for part in problem.parts],
        ),
        "empty_second": ("other", [first, ""]),
        "one_writes_all": ("other", ["", everything]),
        "told_twice": ("other", [everything, everything]),
        "half_the_facts": ("other", [first.split(". ")[0].rstrip(".") + ".", ". ".join(second.split(". ")[:2]) + "."]),
        "half_the_facts_at_most": ("other", _half(first, second)),
        "two_styles": ("other", [first, _present(problem, second)]),
        "with_connectives": ("other", [_opened(problem, first), _opened(problem, second)]),
        "cut_off": ("other", [text[: len(text) * 2 // 3] for text in (first, second)]),
        "another_source": ("degenerate", list(other.reference)),
        "wrong_hero": ("degenerate", [_renamed(problem, other, text) for text in (first, second)]),
        "one_sentence_repeated": (
            "other",
            [" ".join([world.state(facts[0], hero, 0, "past")] * times) for times in (2, 5)],
        ),
    }


def _half(first: str, second: str) -> list[str]:
    """Return the two texts with the first half of their sentences, rounded down."""
    own, other = first.split(". "), second.split(". ")
    kept = (len(own) + len(other)) // 2
    parts = own[:kept], other[: max(0, kept - len(own))]
    return [". ".join(part).rstrip(".") + "." * bool(part) for part in parts]


def _present(problem: WritingProblem, text: str) -> str:
    world = WORLDS[problem.world]
    statements = [world.read(f"{sentence.rstrip('.')}.") for sentence in text.split(". ")]
    return " ".join(world.state(s.fact, problem.hero, 0, "present") for s in statements if s is not None)


def _opened(problem: WritingProblem, text: str) -> str:
    """Return a text each of whose sentences begins with a connective."""
    openings = itertools.cycle(("However", "Moreover", "Then", "Indeed"))
    sentences = [sentence.rstrip(".") for sentence in text.split(". ")]
    return " ".join(f"{opening}, {sentence}." for opening, sentence in zip(openings, sentences, strict=False))


def _renamed(problem: WritingProblem, other: WritingProblem, text: str) -> str:
    """Return the same text about another hero; if the other problem has the same hero, about "nobody"."""
    return text.replace(problem.hero, other.hero if other.hero != problem.hero else "nobody")


def _words(words: list[str], count: int) -> str:
    return " ".join(itertools.islice(itertools.cycle(words), count))


class WritingExaminer(ScriptedExaminer):
    """Plays scripted writers.

    Only the first turn of an episode is used.
    """

    wanted, words = "coverage", "facts told"
    turns = 1

    def teams(self, environment: Any, problem: WritingProblem, other: WritingProblem) -> Teams:
        agents = environment.agents(problem)
        state = environment.start(problem)
        seen = [environment.observe(state, number) for number in range(len(agents))]
        short, long = problem.limits.first[0], problem.limits.second[0]
        source = problem.text.split()
        joint: dict[str, tuple[str, list[str]]] = {
            "empty": ("degenerate", ["", ""]),
            "white_space": ("degenerate", ["\t " * 40, " \t" * 90]),
            "nonsense": ("degenerate", [_words(NONSENSE, short), _words(NONSENSE[20:], long)]),
            "nonsense_with_connectives": ("degenerate", nonsense_with_connectives(problem)),
            "connectives": ("degenerate", [ALL_CATEGORIES, f"{ALL_CATEGORIES} {ALL_CATEGORIES}"]),
            "hidden_connectives": ("degenerate", [HIDDEN, f"{HIDDEN} {HIDDEN}"]),
            "repeated_word": ("degenerate", [_words(["story"], short), _words(["story"], long)]),
            "copied_partner": ("degenerate", [HIDDEN] * 2),
            "copied_source": ("degenerate", [" ".join(source), " ".join(source)]),
            "first_words": ("degenerate", [_words(source, short), _words(source, long)]),
            "copied_prompt": ("degenerate", [seen[0], seen[-1]]),
            "list_of_words": ("degenerate", [f"{' '.join(sorted(set(source)))}.", f"{' '.join(source[::-1])}."]),
        }
        if problem.reference:
            joint |= _about(problem, other)
        if len(agents) == 1:
            return {name: (role, ["\n\n".join(texts)]) for name, (role, texts) in joint.items()}
        return joint
