"""From sampled ids to an action: its end and its text; the same for every engine.

Ids are never computed from text.  An action ends with the first end token, or with the token that completes a stop
string; that token is part of it.  Its text leaves out special tokens and stops before the stop string.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedTokenizerFast

from pipeline_lib.rollouts.engine import Action

if TYPE_CHECKING:
    from pipeline_lib.policies.policy import Policy


def action_of(policy: Policy, ids: tuple[int, ...], logprobs: tuple[float, ...]) -> Action:
    """Return an action from ids that another program drew; text and finish are decided as everywhere in this project.

    Ids up to and including the first end token, or the one that completes the first stop string, are kept.
    """
    ends = set(policy.end_ids)
    keep = next((at + 1 for at, token in enumerate(ids) if token in ends), len(ids))
    stopped = keep <= len(ids) and keep > 0 and ids[keep - 1] in ends
    text = policy.decode(ids[:keep])
    if any(stop in text for stop in policy.stop_strings):
        least = 0
        while least < keep:  # fewest ids whose text holds a stop string
            middle = (least + keep) // 2
            if any(stop in policy.decode(ids[:middle]) for stop in policy.stop_strings):
                keep = middle
            else:
                least = middle + 1
        text, stopped = policy.decode(ids[:keep]), True
    return Action(ids[:keep], logprobs[:keep], cut_at_stop(text, policy.stop_strings), "stop" if stopped else "length")


def cut_at_stop(text: str, stop_strings: tuple[str, ...]) -> str:
    """Return ``text`` up to the first stop string in it."""
    found = [at for stop in stop_strings if (at := text.find(stop)) >= 0]
    return text[: min(found)] if found else text


def decode_all(policy: Policy, sequences: Sequence[tuple[int, ...]]) -> list[str]:
    """Return what `Policy.decode` returns for each sequence; in one call to the Rust tokenizer where there is one."""
    tokenizer: Any = policy.tokenizer
    if getattr(type(tokenizer), "_decode", None) is PreTrainedTokenizerFast._decode:
        texts: list[str] = tokenizer.backend_tokenizer.decode_batch(sequences, skip_special_tokens=True)
        return texts
    return [policy.decode(ids) for ids in sequences]


def stop_test(policy: Policy) -> Callable[[list[int]], bool] | None:
    """Return a test whether drawn ids contain a stop string; it was not in them before their last token."""
    if not policy.stop_strings:
        return None
    # A token is at least a byte, so the last ids that can hold a whole stop string are few; two more give byte-level
    # and word-piece decoders a place for what they do at the start of a text.
    window = max(len(stop.encode()) for stop in policy.stop_strings) + 2

    def stopped(ids: list[int]) -> bool:
        tail = policy.decode(ids[-window:])
        return any(s in tail for s in policy.stop_strings) and any(s in policy.decode(ids) for s in policy.stop_strings)

    return stopped
