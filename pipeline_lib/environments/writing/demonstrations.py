"""Demonstrations for the warm start: texts with gaps, inventions and copies, without agreement between the writers.

Tense and wording are drawn independently for every demonstration, and each writer tells the shared fact, or leaves it
to the other, at random: reinforcement learning has to find faithfulness and agreement.  Only problems of the training
split may be demonstrated; the caller is responsible for that.

Some demonstrations quote an earlier text, as the protocols do in which agents read each other.  There a writer keeps
the other's tense and tells the shared fact only if the other did not.  So an untrained team can read too.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline_lib.environment_api.task import Demonstration
from pipeline_lib.environments.writing.problem import PAIR, SINGLE, WritingProblem
from pipeline_lib.environments.writing.reading import split_sentences
from pipeline_lib.environments.writing.world import OPENINGS, TENSES, WORLDS, draw_problems
from pipeline_lib.storage import digest

#: How often each role is demonstrated; a single agent's texts are twice as long.
ROLES = {"first": 0.35, "second": 0.4, SINGLE: 0.25}

#: What becomes of each fact in a flawed demonstration.
FLAWS = {"told": 0.22, "left out": 0.5, "invented": 0.1, "copied": 0.1, "told twice": 0.08}

#: How often a sentence opens with a connective, and how often a fact that both writers see is told.
OPENED, SHARED_TOLD = 0.12, 0.5

#: How often a writer of a pair is shown what was written before.
QUOTED = 0.2

#: Generated problems that are demonstrated in place of published ones.
OTHERS = 512


@dataclass(frozen=True, slots=True)
class WritingDemonstration(Demonstration):
    """The text of one role."""

    role: str  #: ``first``, ``second`` or ``single``
    flawed: bool  #: whether its facts were changed by `FLAWS`


def demonstrate(
    problems: Sequence[WritingProblem], count: int, mistakes: float, seed: int
) -> list[WritingDemonstration]:
    """Return demonstrations, as `Task.demonstrate`.

    In place of published texts generated ones are shown, since so small a model cannot learn English from them: it
    learns what short texts look like.

    Raises:
        ValueError: there are no problems.
    """
    if not problems:
        raise ValueError("there are no texts to demonstrate")
    rng = random.Random(digest(["writing", seed]))
    if not all(problem.world for problem in problems):
        problems = draw_problems("train", OTHERS, problems[0].task, seed, rng)
    return [_draw(rng.choice(problems), mistakes, rng) for _ in range(count)]


def _draw(problem: WritingProblem, mistakes: float, rng: random.Random) -> WritingDemonstration:
    role = rng.choices(list(ROLES), list(ROLES.values()))[0]
    flawed = rng.random() < mistakes
    tense = rng.choice(TENSES)
    observation = problem.observations[role]
    if role == SINGLE:
        before, after = _told_by_single(problem)
        texts = _text(problem, before, flawed, tense, rng), _text(problem, after, flawed, rng.choice(TENSES), rng)
        return WritingDemonstration(observation, "\n\n".join(texts), role, flawed)
    place = PAIR.index(role)
    mine, others = problem.parts[place], problem.parts[1 - place]
    told = _shared_out(mine, others, rng)
    if rng.random() < QUOTED:
        written, theirs = (
            _text(problem, _shared_out(part, other, rng), rng.random() < mistakes, tense, rng)
            for part, other in ((mine, others), (others, mine))
        )
        if place and rng.random() < 0.5:
            observation = after_reading(observation, [(f"{PAIR[0]} wrote", theirs)], "Write your part.")
        else:
            said = [("You wrote", written), (f"{PAIR[1 - place]} wrote", theirs)]
            observation = after_reading(observation, said, "Write your part again, so that all fit.")
        there = {read.fact for each in split_sentences(theirs) if (read := WORLDS[problem.world].read(each))}
        told = [number for number in mine if number not in others or problem.facts[number] not in there]
    return WritingDemonstration(observation, _text(problem, told, flawed, tense, rng), role, flawed)


def after_reading(observation: str, said: Sequence[tuple[str, str]], request: str) -> str:
    """Return an observation followed by titled texts and a request, as `protocols` quotes them."""
    return "\n\n".join([observation.rstrip("\n"), *(f"{title}:\n{text}" for title, text in said), request]) + "\n"


def _shared_out(mine: Sequence[int], others: Sequence[int], rng: random.Random) -> list[int]:
    """Return which of its facts a writer tells: those that only it sees, and a random choice of the others."""
    return [number for number in mine if number not in others or rng.random() < SHARED_TOLD]


def _told_by_single(problem: WritingProblem) -> tuple[list[int], list[int]]:
    """Return the facts of the first and the second text of a single agent, divided as by a pair that agrees."""
    first, second = problem.parts
    return [number for number in first if number not in second], list(second)


def _text(problem: WritingProblem, told: Sequence[int], flawed: bool, tense: str, rng: random.Random) -> str:
    world = WORLDS[problem.world]
    sentences = []
    for number in told:
        fact = problem.facts[number]
        flaw = rng.choices(list(FLAWS), list(FLAWS.values()))[0] if flawed else "told"
        if flaw == "left out":
            continue
        if flaw == "copied":
            line = world.tell(fact, problem.hero, rng.randrange(2))
            sentences.append(f"{line[0].upper()}{line[1:]}.")
            continue
        for _ in range(2 if flaw == "told twice" else 1):
            shown = world.another(fact, rng) if flaw == "invented" else fact
            sentence = world.state(shown, problem.hero, rng.randrange(2), tense)
            if rng.random() < OPENED:
                first = sentence if sentence.startswith(problem.hero) else sentence[0].lower() + sentence[1:]
                sentence = f"{rng.choice(OPENINGS)}, {first}"
            sentences.append(sentence)
    return " ".join(sentences)
