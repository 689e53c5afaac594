"""The observation of a philosopher (rules, what it sees of the table, how to answer), and how its reply is read.

Two forms.  ``compact`` is a line of single letters for the embedded model, answered by one letter::

    f t h 3 2         left fork free, right fork taken, hungry, nothing changed for 3 of its moves; it is number 2
    L                 L take left, R take right, D put down, W wait

The number stands last, where it weighs most: what breaks the symmetry between philosophers that share one set of
weights is their number, and a tiny model that meets it first hardly learns to use it.

The others are written for language models that follow instructions: ``default`` explains rules and goals, ``minimal``
the rules only, and the rest add one piece of advice to the default.  A philosopher sees its own hands and forks, never
anybody else's plans, except what neighbours tell it and what it is given to remember.

In a reply, the action is the word after the last ``ACTION:``.  A reply without that field is an action only if it
consists of the action's name alone.  Free text is not searched: "I will not grab left" is no grab.  A reply that names
no action is `INVALID`, which is not the same as a deliberate wait.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pipeline_lib.environments.philosophers.table import ACTIONS, INVALID, LEFT, RELEASE, RIGHT, WAIT

Prompt = Literal["compact", "default", "minimal", "symmetry_breaking", "theory_of_mind", "resource_ordering"]

#: Ways in which the introduction of the full prompts is worded.
WORDINGS = 3

#: Largest wait count a compact observation shows.
COMPACT_IDLE = 5

#: Actions in compact form, by action code.
LETTERS = ("W", "L", "R", "D")

_INTRODUCTIONS = (
    "You are {name}, one of {n} philosophers at a table. Between neighbours lies one fork, and a meal takes two: "
    "the one on your left and the one on your right.",
    "{n} philosophers share a table and its forks. You are {name}. To eat you must hold the fork on your left and the "
    "fork on your right at the same time; your neighbours need those forks too.",
    "Name: {name}. Table of {n}. Every fork is shared with a neighbour. You eat as soon as you hold both your left "
    "and your right fork.",
)
_RULES = (
    "Rules: one action per turn. You can only take a fork that is free; a fork two philosophers reach for goes to one "
    "of them. Holding both forks you eat, and afterwards both forks go back to the table by themselves."
)
_SIMULTANEOUS = "Everybody acts at the same moment, without seeing what the others choose."
_SEQUENTIAL = "Philosophers act one after another; it is your turn now."
_GOALS = (
    "Goals, for the table as a whole: never get into a deadlock (everybody holding one fork and waiting for the "
    "other), have as many meals as possible, and let everybody eat about equally often."
)
_ADVICE = {
    "symmetry_breaking": "Advice: if everybody does the same thing at the same time, nobody eats. Now and then wait "
    "for a turn or two before you reach for a fork.",
    "theory_of_mind": "Advice: before you decide, work out what each neighbour sees, what it will probably do next, "
    "and choose the action that goes best with that.",
    "resource_ordering": "Advice: if your number is even, take the right fork first; if it is odd, take the left fork "
    "first. If your first fork is not free, wait. Take the second fork only after the first.",
}
_ACTIONS = "Actions: GRAB_LEFT, GRAB_RIGHT, RELEASE (put down what you hold), WAIT."


@dataclass(frozen=True, slots=True)
class View:
    """What one philosopher can see."""

    label: int | None  #: its number, or None at an anonymous table
    philosophers: int  #: how many sit at the table
    left: str  #: ``mine``, ``free`` or ``taken``
    right: str  #: the same
    eating: bool  #: it is eating
    meals: int  #: meals it has had
    idle: int  #: own moves since something last changed for it


def compact(view: View) -> str:
    """Return the line for the embedded model."""
    seat = "-" if view.label is None else view.label
    state = "e" if view.eating else "h"
    return f"{view.left[0]} {view.right[0]} {state} {min(view.idle, COMPACT_IDLE)} {seat}"


def snapshot(view: View) -> str:
    """Return a short account of what a philosopher saw."""
    return (
        f"{'eating' if view.eating else 'hungry'}, left fork {view.left}, right fork {view.right}, {view.meals} meals"
    )


def full(
    view: View,
    prompt: Prompt,
    wording: int = 0,
    sequential: bool = False,
    heard: Sequence[tuple[str, str]] = (),
    remembered: Sequence[str] = (),
    message_limit: int = 0,
    message_only: bool = False,
) -> str:
    """Return the prompt for a language model.

    Args:
        view: what the philosopher sees.
        prompt: which variant; not ``compact``.
        wording: which introduction, modulo `WORDINGS`.
        sequential: philosophers move one after another.
        heard: neighbours' last messages as (name, text).
        remembered: earlier snapshots, oldest first.
        message_limit: most characters of a message; 0 means that there are no messages.
        message_only: this turn carries a message and no action.
    """
    name = "a philosopher" if view.label is None else f"P{view.label}"
    parts = [_INTRODUCTIONS[wording % WORDINGS].format(name=name, n=view.philosophers), _RULES]
    parts.append(_SEQUENTIAL if sequential else _SIMULTANEOUS)
    if prompt != "minimal":
        parts.append(_GOALS)
    if prompt in _ADVICE:
        parts.append(_ADVICE[prompt])
    parts.append(_ACTIONS)
    if remembered:
        parts.append("Earlier:\n" + "\n".join(remembered))
    state = "eating" if view.eating else "hungry"
    seen = {"mine": "in your hand", "free": "free", "taken": "taken by somebody else"}
    parts.append(
        f"Now: you are {state} and have had {view.meals} meals. "
        f"Left fork: {seen[view.left]}. Right fork: {seen[view.right]}."
    )
    if message_limit:
        said = [f'{who} says: "{text}"' for who, text in heard if text] or ["Your neighbours have said nothing."]
        parts.append("\n".join(said))
    parts.append(_answer(message_limit, message_only))
    return "\n".join(parts) + "\n"


def _answer(message_limit: int, message_only: bool) -> str:
    message = f"MESSAGE: <to your neighbours, at most {message_limit} characters>"
    if message_only:
        return f"Nobody acts yet; first everybody speaks. Answer with one line:\n{message}"
    lines = ["THINKING: <brief>"] + ([message] if message_limit else []) + ["ACTION: <one of the four actions>"]
    return "Answer with these lines:\n" + "\n".join(lines)


def action_name(code: int) -> str:
    """Return the name of an action code, ``nothing readable`` for an unparseable one."""
    return ACTIONS[code] if code < len(ACTIONS) else "nothing readable"


#: Longest reply that is read; a field beyond it does not count.
LONGEST_REPLY = 20_000

#: Accepted names after folding case and dropping everything but letters.
_NAMES = {
    "GRABLEFT": LEFT,
    "LEFT": LEFT,
    "L": LEFT,
    "GRABRIGHT": RIGHT,
    "RIGHT": RIGHT,
    "R": RIGHT,
    "RELEASE": RELEASE,
    "D": RELEASE,
    "WAIT": WAIT,
    "W": WAIT,
}
_ACTION = re.compile(r"ACTION\s*[:=]\s*\W*([A-Za-z]+(?:[ _-](?:LEFT|RIGHT))?)", re.IGNORECASE)
_MESSAGE = re.compile(r"^\W*MESSAGE\s*[:=](.*)$", re.IGNORECASE | re.MULTILINE)
_INTENTS = tuple((re.compile(rf"\b{word}", re.IGNORECASE), code) for word, code in
                 (("left", LEFT), ("right", RIGHT), ("releas", RELEASE), ("wait", WAIT)))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply that was read."""

    action: int  #: an action code of `table`
    message: str = ""  #: the message to the neighbours, cut to the limit; empty if there is none
    message_cut: bool = False  #: the message was longer than the limit


def read_reply(text: str, message_limit: int = 0) -> Reply:
    """Read a reply.

    Args:
        text: what the model wrote, untrusted.
        message_limit: characters of the last ``MESSAGE:`` line that are kept; 0 means that messages are not read.
    """
    text = text[:LONGEST_REPLY]
    fields = _ACTION.findall(text)
    word = fields[-1] if fields else text
    action = _NAMES.get(re.sub(r"[^A-Z]", "", word.upper()), INVALID) if len(word) <= 40 else INVALID
    if message_limit == 0:
        return Reply(action)
    lines = _MESSAGE.findall(text)
    message = " ".join(lines[-1].split()) if lines else ""
    return Reply(action, message[:message_limit], len(message) > message_limit)


def intent(message: str) -> int | None:
    """Return the action a message announces: the first of left, right, release, wait that it mentions, or None."""
    return next((code for pattern, code in _INTENTS if pattern.search(message)), None)
