"""An agent's observation in later turns: its task, its own code, and the notes on it."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline_lib.environment_api.exhibit import Part
from pipeline_lib.environments.coding.feedback.note import Note

#: Most of its own previous text that an agent is shown, in characters.
MAX_OWN_TEXT = 4000

_INVITATION = "Write it again, improved:\n"


def observation(first: str, turns: Sequence[tuple[str, Sequence[Note]]]) -> tuple[Part, ...]:
    """Return an agent's observation in a later turn, in parts with their sources.

    Args:
        first: its observation in the first turn.
        turns: of each turn that it is shown, the oldest first, its text and the notes on it; at least one.
    """
    parts = [Part("task", first.rstrip("\n") + "\n")]
    for text, notes in turns:
        parts.append(Part("own code", f"\nYour code:\n{shown(text)}\n"))
        for number, note in enumerate(notes):
            parts.append(Part(note.source.replace("_", " "), f"{'' if number else chr(10)}- {note.text}\n"))
    return (*parts, Part("", _INVITATION if turns[-1][1] else f"\n{_INVITATION}"))


def shown(text: str) -> str:
    """Return as much of its own text as an agent is shown."""
    return text.strip()[:MAX_OWN_TEXT]
