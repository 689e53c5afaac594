"""Feedback to a writer after a turn: its own text, and counts for it, in words.

Promises: nothing here comes from another writer's text, or from a part of the source that the writer was not shown.
"""

from __future__ import annotations

from collections.abc import Sequence

#: Most of its own previous text that a writer is shown, in characters.
MAX_OWN_TEXT = 4000


def next_observation(first: str, action: str, notes: Sequence[str]) -> str:
    """Return what a writer sees in a later turn.

    Args:
        first: its observation in the first turn.
        action: the text it wrote last.
        notes: feedback on this text, a line each; none with plain feedback.
    """
    lines = [first.rstrip("\n"), "", "Your text:", action.strip()[:MAX_OWN_TEXT], ""]
    return "\n".join([*lines, *(f"- {note}" for note in notes), "Write it again, improved:\n"])
