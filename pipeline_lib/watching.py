"""Who watches a long call of an engine while it runs: how many actions are finished, and how many tokens were drawn."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Protocol


class Watcher(Protocol):
    """Is called after every step of sampling."""

    def __call__(self, finished: int, actions: int, tokens: int, share: float) -> None:
        """Take the actions that have ended, all actions of the call, tokens drawn, and the share done (0 to 1).

        The share counts an action that has not ended by its tokens, of those that it may have.
        """


_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


def watcher() -> Callable[[int, int, int, float], None] | None:
    """Return who watches in this context, or None."""
    return _watcher.get()


@contextlib.contextmanager
def watched(by: Watcher) -> Iterator[None]:
    """Let ``by`` watch the engines' calls in a ``with`` block."""
    token = _watcher.set(by)
    try:
        yield
    finally:
        _watcher.reset(token)
