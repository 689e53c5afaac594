"""Generated posts and abstracts with known facts.

A text has six facts (a post) or seven (an abstract).  Each writer of a pair is shown a part of them: neither sees all,
together they see everything, and both see one of the facts.  They must agree on who tells that one: told by both it is
repeated, told by neither it is missing.

Splits have different families: the deed and its object, the question and who was affected (posts), or method, aim,
problem and user (abstracts).  The combination of a test text never occurs in training, although each word does.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipeline_lib.environments.writing.problems.problem import PAIR, SINGLE, Limits, WritingProblem
from pipeline_lib.environments.writing.problems.world import WORLDS, Fact, World
from pipeline_lib.problems.splitting import FAMILY_SHARES, draw_distinct, split_of
from pipeline_lib.settings.problems import Prompt
from pipeline_lib.storage import digest

if TYPE_CHECKING:
    from pipeline_lib.environments.writing.settings import GeneratedTexts

#: Facts that the first writer alone sees, that both see, that the second alone sees.
POST_PARTS, PAPER_PARTS = (2, 1, 3), (3, 1, 3)

#: The facts of a post: the deed, the question, its effect on another person, and the details.
POST_ORDER = ("deed", "ask", "mood", "cause", "place", "month")

#: The facts of an abstract in the order of an introduction: background, motivation, aim, method, implications.
PAPER_ORDER = ("field", "problem", "gap", "aim", "method", "data", "use")

LIMITS = {
    "summary": Limits((8, 18), (15, 26), (1.05, 3.0)),
    "introduction": Limits((13, 22), (13, 22), (0.65, 1.6)),
}

#: What the writers are asked for; short, because the embedded model reads it on a CPU.
_ASKED = {
    "summary": {"first": "short summary", "second": "long summary", "single": "short and long summary"},
    "introduction": {"first": "background", "second": "method", "single": "background and method"},
}

#: The same in plain English.
_ASKED_PLAINLY = {
    "summary": {
        "first": "Write a short summary of this post. Another writer, who knows a part of it too, writes a long one.",
        "second": "Write a long summary of this post. Another writer, who knows a part of it too, writes a short one.",
        "single": "Write a short summary of this post and, after an empty line, a long one.",
    },
    "introduction": {
        "first": "Write the background of this work. Another writer, who knows a part of it too, writes the method.",
        "second": "Write the method of this work. Another writer, who knows a part of it too, writes the background.",
        "single": "Write the background of this work and, after an empty line, the method.",
    },
}


def generate(settings: GeneratedTexts) -> dict[str, list[WritingProblem]]:
    """Return the problems of all splits; the same settings give the same problems.

    Raises:
        ValueError: a split is larger than the number of different texts that can be found for it.
    """
    rng = random.Random(digest(["texts", settings.seed]))
    return {
        split: draw_problems(split, getattr(settings.sizes, split), settings.task, settings.seed, rng, settings.prompt)
        for split in FAMILY_SHARES
    }


def draw_problems(
    split: str, size: int, task: str, seed: int, rng: random.Random, prompt: Prompt = "compact"
) -> list[WritingProblem]:
    """Return different problems of one split; raises as `generate`."""

    def one(_: int) -> WritingProblem | None:
        problem = draw_post(rng, prompt) if task == "summary" else draw_abstract(rng, prompt)
        return problem if split_of(problem.family, seed) == split else None

    return draw_distinct(split, size, one, "ask for fewer")


def draw_post(rng: random.Random, prompt: Prompt = "compact") -> WritingProblem:
    """Return a post: deed and question, which only the first writer sees, and the details."""
    world = WORLDS["posts"]
    facts = world.draw(POST_ORDER, rng)
    told = dict(facts)
    family = "-".join([*told["deed"], *told["ask"], *told["mood"][:1]])
    return _problem(world, "summary", family, facts, POST_PARTS, rng, prompt)


def draw_abstract(rng: random.Random, prompt: Prompt = "compact") -> WritingProblem:
    """Return an abstract; background and motivation go to the first writer, method and implications to the second."""
    world = WORLDS["papers"]
    facts = world.draw(PAPER_ORDER, rng)
    told = dict(facts)
    family = "-".join(told[name][0] for name in ("method", "aim", "problem", "use"))
    return _problem(world, "introduction", family, facts, PAPER_PARTS, rng, prompt)


def _problem(
    world: World,
    task: str,
    family: str,
    facts: Sequence[Fact],
    dealt: tuple[int, int, int],
    rng: random.Random,
    prompt: Prompt,
) -> WritingProblem:
    hero = rng.choice(world.values("hero"))
    lines = [world.tell(fact, hero, rng.randrange(2)) for fact in facts]
    numbers = range(len(facts))
    shared_from, shared = dealt[0], dealt[0] + dealt[1]
    parts = (tuple(numbers[:shared]), tuple(numbers[shared_from:]))
    seen = {**dict(zip(PAIR, parts, strict=True)), SINGLE: tuple(numbers)}
    text = f"{hero}: {'; '.join(lines)}"
    return WritingProblem(
        id=f"world/{world.name}-{digest([text])[:12]}",
        source="world",
        family=f"{world.name}-{family}",
        task=task,
        observations={
            role: _observation(f"{hero}: {'; '.join(lines[i] for i in shown)}.", task, role, prompt)
            for role, shown in seen.items()
        },
        text=text,
        limits=LIMITS[task],
        world=world.name,
        hero=hero,
        facts=tuple(facts),
        parts=parts,
        reference=tuple(
            write(world, hero, [facts[i] for i in told]) for told in (numbers[:shared_from], numbers[shared_from:])
        ),
    )


def _observation(told: str, task: str, role: str, prompt: Prompt) -> str:
    """Return what a role is told of the source, with what it is asked for."""
    if prompt == "compact":
        return f"{told} {_ASKED[task][role]}:\n"
    return (
        f"{told}\n{_ASKED_PLAINLY[task][role]} Tell each thing in one sentence, as somebody who was not there. "
        "Answer with the text only.\n"
    )


def write(world: World, hero: str, facts: Sequence[Fact]) -> str:
    """Return a text that tells facts, one sentence each, in the past and with the hero in every sentence."""
    return " ".join(world.state(fact, hero, 0, "past") for fact in facts)
