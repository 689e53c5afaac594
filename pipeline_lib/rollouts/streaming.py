"""The text of an action while it is being sampled, token by token.

The pieces together are the action's text as defined by `actions`: no special tokens, cut before a stop string.  Text
that may still change is held back: bytes of an incomplete character, and the possible beginning of a stop string.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipeline_lib.rollouts.actions import cut_at_stop

if TYPE_CHECKING:
    from pipeline_lib.policies.policy import Policy

_UNFINISHED = "\ufffd"


class TextStream:
    """The text of one action as it grows; it ends before any of the policy's stop strings and of ``stop``."""

    def __init__(self, policy: Policy, stop: Sequence[str] = ()) -> None:
        self._policy = policy
        self._stops = (*policy.stop_strings, *stop)
        self._ids: list[int] = []
        self._returned = ""

    def add(self, token: int) -> str:
        """Add a token and return the new text that is final."""
        self._ids.append(token)
        text = self._policy.decode(self._ids).rstrip(_UNFINISHED)
        whole = cut_at_stop(text, self._stops)
        if whole == text:
            whole = text[: len(text) - self._may_become_stop(text)]
        return self._new_text(whole)

    def end(self, text: str) -> str:
        """Return the rest of the finished action's text."""
        return self._new_text(text)

    def _new_text(self, text: str) -> str:
        if not text.startswith(self._returned):  # the decoder changed earlier text; `end` returns the rest
            return ""
        new = text[len(self._returned) :]
        self._returned = text if new else self._returned
        return new

    def _may_become_stop(self, text: str) -> int:
        """Return how many letters at the end of ``text`` a stop string may begin with."""
        beginnings = {stop[:length] for stop in self._stops for length in range(1, len(stop))}
        return max((len(piece) for piece in beginnings if text.endswith(piece)), default=0)
