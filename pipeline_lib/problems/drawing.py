"""Draw generated problems for the splits; problems of one family are all in the same split."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from pipeline_lib.environment_api.task import Problem
from pipeline_lib.storage import digest

P = TypeVar("P", bound=Problem)

#: Upper ends of the shares of families that train, validation and test draw from.
FAMILY_SHARES = {"train": 0.7, "validation": 0.8, "test": 1.0}

#: Number of consecutive draws without a new problem after which a split counts as exhausted.
MAX_FAILED_DRAWS = 20_000


@lru_cache(maxsize=65536)
def split_of(family: str, seed: int, apart_from: int | None = None) -> str:
    """Return the only split in which problems of a family may occur.

    Args:
        family: name of the family.
        seed: of the split.
        apart_from: seed of another split; a family that is in its validation or test problems is in none here (empty).
    """
    if apart_from is not None and split_of(family, apart_from) != "train":
        return ""
    share = int(digest(["family", seed, family])[:12], 16) / 16**12
    return next(split for split, end in FAMILY_SHARES.items() if share < end)


def draw_distinct(split: str, size: int, draw: Callable[[int], P | None], advice: str) -> list[P]:
    """Return ``size`` problems of different ids.

    Args:
        split: name of the split, for the message.
        size: number of problems.
        draw: takes the number of problems found so far; returns a problem, or None if it is not for this split.
        advice: what the user can do if there are too few.

    Raises:
        ValueError: there are too few; the message says how many were found.
    """
    drawn: dict[str, P] = {}
    failed = 0
    while len(drawn) < size:
        failed += 1
        if failed > MAX_FAILED_DRAWS:
            raise ValueError(
                f"problems.sizes.{split}: asked for {size}, but only {len(drawn)} different problems were found; "
                f"{advice}"
            )
        problem = draw(len(drawn))
        if problem is not None and problem.id not in drawn:
            drawn[problem.id] = problem
            failed = 0
    return list(drawn.values())
