"""From sampled ids to an action: its end and its text, whole or while it is sampled; the same for every engine.

Ids are never computed from text.  An action ends with the first end token, or with the token that completes a stop
string; that token is part of it.  Its text leaves out special tokens and stops before the stop string.  While it is
sampled, text that may still change is held back: bytes of an incomplete character, and the possible beginning of a stop
string.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedTokenizerFast

from pipeline_lib.rollouts.engine import Action

if TYPE_CHECKING:
    from pipeline_lib.policies.policy import Policy


def action_of(policy: Policy, ids: tuple[int, ...], logprobs: tuple[float, ...]) -> Action:
    """Return an action from ids that another program sampled.

    Ids up to and including the first end token, or the one that completes the first stop string, are kept.
    """
    ends = set(policy.end_ids)
    keep = next((at + 1 for at, token in enumerate(ids) if token in ends), len(ids))
    stopped = keep <= len(ids) and keep > 0 and ids[keep - 1] in ends
    text = policy.decode(ids[:keep])
    if any(stop in text for stop in policy.stop_strings):

        def complete(length: int) -> bool:
            return any(stop in policy.decode(ids[:length]) for stop in policy.stop_strings)

        keep = bisect_left(range(keep), True, key=complete)
        text, stopped = policy.decode(ids[:keep]), True
    return Action(ids[:keep], logprobs[:keep], cut_at_stop(text, policy.stop_strings), "stop" if stopped else "length")


def cut_at_stop(text: str, stop_strings: tuple[str, ...]) -> str:
    """Return ``text`` up to the first stop string in it."""
    found = [at for stop in stop_strings if (at := text.find(stop)) >= 0]
    return text[: min(found)] if found else text


def decode_all(policy: Policy, sequences: Sequence[tuple[int, ...]]) -> list[str]:
    """Return `Policy.decode` of each sequence; a Rust tokenizer decodes all in one call."""
    tokenizer: Any = policy.tokenizer
    if getattr(type(tokenizer), "_decode", None) is PreTrainedTokenizerFast._decode:
        texts: list[str] = tokenizer.backend_tokenizer.decode_batch(sequences, skip_special_tokens=True)
        return texts
    return [policy.decode(ids) for ids in sequences]


def stop_test(policy: Policy) -> Callable[[list[int]], bool] | None:
    """Return a function that tests whether the last of the given ids completes a stop string; None without any."""
    if not policy.stop_strings:
        return None
    # A token has at least one byte, so the last few ids contain any stop string.  Two more ids, because decoders treat
    # the start of a text differently.
    window = max(len(stop.encode()) for stop in policy.stop_strings) + 2

    def stopped(ids: list[int]) -> bool:
        tail = policy.decode(ids[-window:])
        return any(s in tail for s in policy.stop_strings) and any(s in policy.decode(ids) for s in policy.stop_strings)

    return stopped


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
