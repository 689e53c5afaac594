"""How far a long call of an engine is, for whoever shows it: stages set a receiver, engines call it.

It passes by the players between both, which have no use for it.  (`pipeline_lib.play.watching` is for those who follow
every token of an episode.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

OnSampled = Callable[[int, int, int, float], None]
"""Called after each step of sampling with the number of actions that have ended, of all actions of the call, and of
tokens drawn, and with the share done (0 to 1), in which an action under way counts by its tokens, of those it may have.
"""

_receiver: ContextVar[OnSampled | None] = ContextVar("receiver", default=None)


def receiver() -> OnSampled | None:
    """Return what is called in this context, or None."""
    return _receiver.get()


@contextlib.contextmanager
def sampling_shown_by(on_sampled: OnSampled) -> Iterator[None]:
    """Let ``on_sampled`` be called by the engines in a ``with`` block."""
    token = _receiver.set(on_sampled)
    try:
        yield
    finally:
        _receiver.reset(token)
