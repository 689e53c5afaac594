"""The source ``critic``: what an agent's own base, which nobody trains, would write in the agent's place.

The base reads exactly what the agent would read without it: its task, its own code and all other notes on it.  So it
cannot tell an agent anything of a hidden test or of another agent's text.  It has no prompt of its own: a base that has
seen later turns repairs the code, a chat model does the same, and a plain language model could not follow a request for
a review.
"""

from __future__ import annotations

from pipeline_lib.environments.coding.feedback.note import Note, printable

#: Longest text of the critic that an agent is shown, in characters.
MAX_TEXT = 400

_SOURCE = "critic"


def note_of(text: str) -> Note:
    """Return what the base wrote as a note; its lines are kept, and it is cut to `MAX_TEXT`."""
    code = printable(text)
    if not code:
        return Note(_SOURCE, "the untrained model would write nothing")
    shown = code if len(code) <= MAX_TEXT else code[: MAX_TEXT - 3] + "..."
    return Note(_SOURCE, f"the untrained model would write:\n{shown}")
