"""Read an action and a message from a model's text.

The action is the word after the last ``ACTION:``.  A reply without that field is an action only if it consists of the
action's name alone.  Free text is not searched: "I will not grab left" is no grab.  A reply that names no action is
`INVALID`, which is not the same as a deliberate wait.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pipeline_lib.environments.philosophers.table import INVALID, LEFT, RELEASE, RIGHT, WAIT

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
    """A reply that was read.

    Attributes:
        action: an action code of `table`.
        message: the message to the neighbours, cut to the limit; empty if there is none.
        message_cut: the message was longer than the limit.
    """

    action: int
    message: str = ""
    message_cut: bool = False


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
