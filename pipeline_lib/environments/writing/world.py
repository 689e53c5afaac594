"""Small worlds whose texts can be read exactly, and posts and abstracts that are generated in them.

A *statement* is a sentence made from one of the templates of a kind of fact, in past or present tense; `World.read`
gets the fact back from it.  A *source line* gives a fact in the style of the source and is not a statement: a copy of
it states nothing.  Every content word belongs to one class of words, so reading means replacing words by their classes
and looking up the result.  Nothing is guessed, and no two templates are equal.

In *posts* a person did something with a thing, and asks what to do now.  In *papers* a thing has a problem, work on it
lacks something, and a method helps.

A generated text has six facts (a post) or seven (an abstract).  Each writer of a pair is shown a part of them: neither
sees all, together they see everything, and both see one of the facts.  They must agree on who tells that one: told by
both it is repeated, told by neither it is missing.

Splits have different families: the deed and its object, the question and who was affected (posts), or method, aim,
problem and user (abstracts).  The combination of a test text never occurs in training, although each word does.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from pipeline_lib.environments.writing.problem import PAIR, SINGLE, Fact, Limits, WritingProblem
from pipeline_lib.problems.splitting import FAMILY_SHARES, draw_distinct, split_of
from pipeline_lib.settings.problems import Prompt
from pipeline_lib.storage import digest

if TYPE_CHECKING:
    from pipeline_lib.environments.writing.settings import GeneratedTexts


TENSES = ("past", "present")

#: Words that may stand before a statement, set off by a comma; they add nothing to it.
OPENINGS = (
    "However",
    "Moreover",
    "Then",
    "Indeed",
    "For example",
    "In short",
    "Likewise",
    "Although",
    "If so",
    "Still",
)

_OPENING = re.compile(rf"(?:{'|'.join(OPENINGS)}), ", re.IGNORECASE)
_SLOT = re.compile(r"{(\w+)}")


@dataclass(frozen=True)
class Kind:
    """A kind of fact."""

    #: Templates; ``{hero}`` is who or what the text is about, ``{deed}`` a verb in the sentence's tense,
    #: ``{deed:past}`` one in the past, ``was/is`` a word of either tense.
    statements: tuple[str, ...]
    source: tuple[str, ...]  #: templates in the voice of the source

    @cached_property
    def slots(self) -> tuple[str, ...]:
        """Return the classes of its values, in the order of the first template."""
        return tuple(slot for slot in _SLOT.findall(self.statements[0]) if slot != "hero")


@dataclass(frozen=True, slots=True)
class Statement:
    """The statement of a sentence."""

    fact: Fact  #: the fact
    hero: str  #: its subject; empty if the sentence does not name it
    tense: str  #: ``past`` or ``present``
    entities: frozenset[str]  #: the entities that it names
    words: int  #: number of words, without an opening connective


@dataclass(slots=True)
class World:
    """A world and its language."""

    name: str  #: what it is called
    words: Mapping[str, tuple[str, ...]]  #: the values of each class but verbs
    #: Past, present and plain form of each verb, by class; the plain form is the value.
    verbs: Mapping[str, tuple[tuple[str, str, str], ...]]
    kinds: Mapping[str, Kind]  #: the kinds of facts by name
    entities: frozenset[str]  #: the classes of words that join two sentences if both contain the same one
    _classes: dict[str, tuple[str, str]] = field(default_factory=dict)
    _forms: dict[tuple[str, str], tuple[str, str, str]] = field(default_factory=dict)
    _skeletons: dict[tuple[str, ...], tuple[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, values in self.words.items():
            for value in values:
                self._enter(value.lower(), name, value)
        for name, verbs in self.verbs.items():
            for past, present, plain in verbs:
                self._forms[name, plain] = (past, present, plain)
                self._enter(past, f"{name}:past", plain)
                self._enter(present, f"{name}:present", plain)
        for kind_name, kind in self.kinds.items():
            for template in kind.statements:
                for number, tense in enumerate(TENSES):
                    skeleton = tuple(self._skeleton_word(word, number) for word in template.split())
                    if self._skeletons.setdefault(skeleton, (kind_name, tense)) != (kind_name, tense):
                        raise ValueError(f"world {self.name}: two templates look alike: {' '.join(skeleton)}")

    def values(self, slot: str) -> tuple[str, ...]:
        return self.words[slot] if slot in self.words else tuple(plain for _, _, plain in self.verbs[slot])

    def state(self, fact: Fact, hero: str, template: int, tense: str) -> str:
        """Return a fact as a sentence.

        Args:
            fact: kind and values.
            hero: who or what the text is about.
            template: number of the template, modulo how many the kind has.
            tense: ``past`` or ``present``.
        """
        templates = self.kinds[fact[0]].statements
        number = TENSES.index(tense)
        words = [_of_tense(word, number) for word in templates[template % len(templates)].split()]
        text = self._fill(" ".join(words), fact, hero, number)
        return f"{text[0].upper()}{text[1:]}."

    def tell(self, fact: Fact, hero: str, template: int) -> str:
        """Return a fact in the voice of the source, without a full stop."""
        templates = self.kinds[fact[0]].source
        return self._fill(templates[template % len(templates)], fact, hero, 2)

    def read(self, sentence: str) -> Statement | None:
        """Return what a sentence states, or None if it is no statement; one opening connective is skipped.

        The sentence must begin with a capital letter and end with a full stop.
        """
        if not sentence.endswith(".") or not sentence[:1].isupper():
            return None
        opening = _OPENING.match(sentence)
        words = sentence[opening.end() if opening else 0 : -1].lower().split()
        classes = [self._classes.get(word) for word in words]
        template = self._skeletons.get(
            tuple(f"<{word_class[0]}>" if word_class else word for word_class, word in zip(classes, words, strict=True))
        )
        if template is None:
            return None
        kind, tense = template
        said = {word_class[0].partition(":")[0]: word_class[1] for word_class in classes if word_class}
        return Statement(
            fact=(kind, tuple(said[slot] for slot in self.kinds[kind].slots)),
            hero=said.get("hero", ""),
            tense=tense,
            entities=frozenset(value for name, value in said.items() if name in self.entities),
            words=len(words),
        )

    def another(self, fact: Fact, rng: random.Random) -> Fact:
        """Return a fact of the same kind with one value exchanged."""
        kind, values = fact
        place = rng.randrange(len(values))
        other = rng.choice([v for v in self.values(self.kinds[kind].slots[place]) if v != values[place]])
        return kind, (*values[:place], other, *values[place + 1 :])

    def draw(self, kinds: Sequence[str], rng: random.Random) -> list[Fact]:
        return [(name, tuple(rng.choice(self.values(slot)) for slot in self.kinds[name].slots)) for name in kinds]

    def _enter(self, word: str, name: str, value: str) -> None:
        if word in self._classes:
            raise ValueError(f"world {self.name}: {word!r} is in two classes, {self._classes[word][0]} and {name}")
        self._classes[word] = name, value

    def _skeleton_word(self, word: str, tense: int) -> str:
        word = _of_tense(word, tense).lower()
        slot = _SLOT.fullmatch(word)
        if slot is None and not word.startswith("{"):
            if word in self._classes:
                raise ValueError(f"world {self.name}: {word!r} is a word of a template and of a class")
            return word
        if slot is None:
            return f"<{word[1:-1]}>"
        return f"<{slot[1]}:{TENSES[tense]}>" if slot[1] in self.verbs else f"<{slot[1]}>"

    def _fill(self, template: str, fact: Fact, hero: str, form: int) -> str:
        values = dict(zip(self.kinds[fact[0]].slots, fact[1], strict=True)) | {"hero": hero}

        def value(slot: str) -> str:
            name, _, tense = slot.partition(":")
            if name not in self.verbs:
                return values[name]
            return self._forms[name, values[name]][TENSES.index(tense) if tense else form]

        return re.sub(r"{([\w:]+)}", lambda match: value(match[1]), template)


def _of_tense(word: str, tense: int) -> str:
    """Return the word of a pair ``was/is`` that belongs to a tense."""
    return word.split("/")[tense] if "/" in word else word


POSTS = World(
    name="posts",
    words={
        "hero": ("Mara", "Jonas", "Ines", "Tariq", "Lena", "Omar"),
        "thing": ("boat", "car", "piano", "bike", "tent", "lamp"),
        "cause": ("storm", "fire", "flood", "debt", "theft", "accident"),
        "place": ("market", "lake", "station", "school", "garden", "harbor"),
        "month": ("March", "April", "May", "June", "July", "August"),
        "other": ("sister", "brother", "boss", "neighbor", "landlord", "cousin"),
        "mood": ("angry", "sad", "proud", "worried", "glad", "jealous"),
        "act": ("apologize", "pay", "leave", "wait", "call", "explain"),
    },
    verbs={
        "deed": (
            ("sold", "sells", "sell"),
            ("lost", "loses", "lose"),
            ("painted", "paints", "paint"),
            ("traded", "trades", "trade"),
            ("rented", "rents", "rent"),
            ("repaired", "repairs", "repair"),
        ),
    },
    kinds={
        "deed": Kind(
            ("{hero} {deed} the {thing}", "the {thing} was/is {deed:past} by {hero}"),
            ("i {deed:past} my {thing}", "my {thing} got {deed:past}"),
        ),
        "ask": Kind(
            ("{hero} asked/asks whether to {act}", "the question was/is whether to {act}"),
            ("should i {act}", "do i {act} now"),
        ),
        "cause": Kind(
            ("{hero} did/does it because of the {cause}", "the reason was/is the {cause}"),
            ("blame the {cause}", "all because of the {cause}"),
        ),
        "place": Kind(
            ("{hero} did/does it at the {place}", "it happened/happens at the {place}"),
            ("we met at the {place}", "down at the {place}"),
        ),
        "month": Kind(
            ("{hero} did/does it in {month}", "it was/is in {month}"),
            ("back in {month}", "that was {month}"),
        ),
        "mood": Kind(
            ("{hero} made/makes the {other} {mood}", "it made/makes the {other} {mood}"),
            ("my {other} got {mood}", "{mood} says my {other}"),
        ),
    },
    entities=frozenset({"hero", "thing", "other"}),
)


PAPERS = World(
    name="papers",
    words={
        "hero": ("sensor", "robot", "antenna", "engine", "reactor", "camera"),
        "field": ("medicine", "biology", "physics", "chemistry", "geology", "farming"),
        "problem": ("noise", "drift", "decay", "leakage", "friction", "heat"),
        "gap": ("data", "theory", "tools", "labels", "models", "proofs"),
        "gain": ("speed", "accuracy", "range", "safety", "comfort", "control"),
        "method": ("filter", "graph", "kernel", "network", "shield", "buffer"),
        "data": ("images", "records", "signals", "maps", "letters", "samples"),
        "user": ("hospitals", "farms", "schools", "ports", "banks", "cities"),
    },
    verbs={},
    kinds={
        "field": Kind(
            ("the {hero} mattered/matters in {field}", "the field was/is {field}"),
            ("long known from {field}", "used in {field}"),
        ),
        "problem": Kind(
            ("the {hero} suffered/suffers from {problem}", "the problem was/is {problem}"),
            ("limited by {problem}", "prone to {problem}"),
        ),
        "gap": Kind(
            ("work on the {hero} lacked/lacks {gap}", "past work had/has no {gap}"),
            ("{gap} are missing", "no {gap} so far"),
        ),
        "aim": Kind(
            ("the {hero} needed/needs better {gain}", "the aim was/is better {gain}"),
            ("we target {gain}", "towards {gain}"),
        ),
        "method": Kind(
            ("the {hero} got/gets help from a {method}", "the method was/is a {method}"),
            ("we propose a {method}", "via a {method}"),
        ),
        "data": Kind(
            ("the {hero} was/is tested on {data}", "the tests used/use {data}"),
            ("evaluated with {data}", "we run it on {data}"),
        ),
        "use": Kind(
            ("the {hero} served/serves {user}", "the result served/serves {user}"),
            ("good news for {user}", "{user} benefit"),
        ),
    },
    entities=frozenset({"hero"}),
)


WORLDS: dict[str, World] = {world.name: world for world in (POSTS, PAPERS)}


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
