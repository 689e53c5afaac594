"""Draws generated problems for splits that are kept apart by family."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from pipeline_lib.environment_api.task import Problem
from pipeline_lib.storage import digest

P = TypeVar("P", bound=Problem)

#: Upper ends of the shares of families that train, validation and test draw from.
FAMILY_SHARES = {"train": 0.7, "validation": 0.8, "test": 1.0}

#: Draws in a row without a new problem after which a split counts as exhausted.
PATIENCE = 20_000


@lru_cache(maxsize=65536)
def split_of(family: str, seed: int) -> str:
    """Return the only split in which problems of a family may occur."""
    share = int(digest(["family", seed, family])[:12], 16) / 16**12
    return next(split for split, end in FAMILY_SHARES.items() if share < end)


def draw_different(split: str, size: int, draw: Callable[[int], P | None], advice: str) -> list[P]:
    """Return ``size`` problems of different ids.

    Args:
        split: which they are for, for the message.
        size: how many.
        draw: gets how many there are and returns the next, or None if that is not one for the split.
        advice: what to do if there are not so many.

    Raises:
        ValueError: there are not so many; the message says how many were found.
    """
    found: dict[str, P] = {}
    in_vain = 0
    while len(found) < size:
        in_vain += 1
        if in_vain > PATIENCE:
            raise ValueError(
                f"problems.sizes.{split}: asked for {size}, but only {len(found)} different problems were found; "
                f"{advice}"
            )
        problem = draw(len(found))
        if problem is not None and problem.id not in found:
            found[problem.id] = problem
            in_vain = 0
    return list(found.values())
