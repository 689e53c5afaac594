"""What the embedded model is shown before it learns from reward: texts with gaps, inventions, copying and no agreement.

Tense and wording are drawn for every demonstration on its own, and either writer tells what both have seen, or leaves
it to the other, as chance has it: what reinforcement learning has to find is faithfulness, and agreement.  Only
problems of the training split may be demonstrated; the caller sees to that.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline_lib.environments.writing.problems.generated import draw_problems
from pipeline_lib.environments.writing.problems.problem import PAIR, SINGLE, WritingProblem
from pipeline_lib.environments.writing.problems.world import OPENINGS, TENSES
from pipeline_lib.environments.writing.problems.worlds import WORLDS
from pipeline_lib.seam.task import Demonstration
from pipeline_lib.storage import digest

#: How often each role is demonstrated; a single agent's texts are twice as long.
ROLES = {"first": 0.35, "second": 0.4, SINGLE: 0.25}

#: What becomes of each fact in a flawed demonstration.
FLAWS = {"told": 0.22, "left out": 0.5, "invented": 0.1, "copied": 0.1, "told twice": 0.08}

#: How often a sentence opens with a connective, and how often a fact that both writers see is told.
OPENED, SHARED_TOLD = 0.12, 0.5

#: Generated problems that are demonstrated in place of published ones.
OTHERS = 512


@dataclass(frozen=True, slots=True)
class WritingDemonstration(Demonstration):
    """The text of one role.

    Attributes:
        role: ``first``, ``second`` or ``single``.
        flawed: its facts went through `FLAWS`.
    """

    role: str
    flawed: bool


def demonstrate(
    problems: Sequence[WritingProblem], count: int, mistakes: float, seed: int
) -> list[WritingDemonstration]:
    """Return ``count`` demonstrations; the same arguments give the same list.

    Args:
        problems: of the training split; in place of published ones generated ones are shown, since so small a model
            cannot learn English from them: it learns what short texts look like.
        count: how many, drawn with replacement.
        mistakes: share in [0, 1) of flawed ones.
        seed: fixes every draw.

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
    if role == SINGLE:
        own, rest = _told_by_single(problem)
        action = f"{_text(problem, own, flawed, rng)}\n\n{_text(problem, rest, flawed, rng)}"
    else:
        mine, others = problem.parts if role == PAIR[0] else problem.parts[::-1]
        told = [number for number in mine if number not in others or rng.random() < SHARED_TOLD]
        action = _text(problem, told, flawed, rng)
    return WritingDemonstration(problem.observations[role], action, role, flawed)


def _told_by_single(problem: WritingProblem) -> tuple[list[int], list[int]]:
    """Return which facts a single agent tells first and second: as a pair that agrees does."""
    first, second = problem.parts
    return [number for number in first if number not in second], list(second)


def _text(problem: WritingProblem, told: Sequence[int], flawed: bool, rng: random.Random) -> str:
    world, tense = WORLDS[problem.world], rng.choice(TENSES)
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
