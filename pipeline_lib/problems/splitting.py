"""Divide the problems of a dataset among the splits, and draw generated ones for them, each family in one split."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

from pipeline_lib.environment_api.task import Problem
from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.problems.rows import Row
from pipeline_lib.problems.splits import SPLITS
from pipeline_lib.storage import digest

log = logging.getLogger("symposium.problems")

P = TypeVar("P", bound=Problem)


Pairs = Sequence[tuple[P, Row]]
"""Problems with the rows they were made from."""


def split_problems(pairs: Pairs[P], validation: float, test: float, seed: int) -> dict[str, list[P]]:
    """Divide problems among the splits: as their file says, else by the shares; of copies only the first is used.

    A warning names the copies that are left out.

    Args:
        pairs: at least one problem.
        validation: share of the validation split, in (0, 1).
        test: share of the test split, in (0, 1).
        seed: of the draw.

    Raises:
        ProblemsError: a split would be empty, a file puts copies of a problem in two splits, or two problems have the
            same id.
    """
    kept = _without_copies(pairs)
    _check_ids(kept)
    if kept[0][1].split:
        return _as_the_file_says(kept)
    order = [problem for problem, _ in kept]
    random.Random(digest(["split", seed])).shuffle(order)
    sizes = {"validation": validation, "test": test}
    splits: dict[str, list[P]] = {}
    start = 0
    for split, share in sizes.items():
        end = start + round(share * len(order))
        splits[split] = order[start:end]
        start = end
    splits["train"] = order[start:]
    for split, share in {**sizes, "train": 1 - sum(sizes.values())}.items():
        if not splits[split]:
            raise ProblemsError(
                f"problems.{split}: {len(order)} different problems leave none for the {split} split "
                f"(share {share:.2f}); use a larger source or other shares"
            )
    return {split: splits[split] for split in SPLITS}


def _without_copies(pairs: Pairs[P]) -> list[tuple[P, Row]]:
    kept: dict[str, tuple[P, Row]] = {}
    copies = []
    for problem, row in pairs:
        first, its_row = kept.setdefault(problem.content_hash, (problem, row))
        if row.split != its_row.split:
            raise ProblemsError(
                f"{row.place}: problem {problem.id!r} of the {row.split} split is problem {first.id!r} of the "
                f"{its_row.split} split ({its_row.place}; same content after normalisation); remove one of them"
            )
        if row is not its_row:
            copies.append(f"{problem.id} (of {first.id})")
    if copies:
        log.warning("%d of %d problems are copies and left out: %s", len(copies), len(pairs), ", ".join(copies))
    return list(kept.values())


def _check_ids(pairs: Pairs[P]) -> None:
    first_seen: dict[str, Row] = {}
    for problem, row in pairs:
        if (other := first_seen.setdefault(problem.id, row)) is not row:
            raise ProblemsError(
                f"{row.place}: problem {problem.id!r} has the id of another one ({other.place}); results are kept by "
                "id: rename one of them"
            )


def _as_the_file_says(pairs: Pairs[P]) -> dict[str, list[P]]:
    splits = {split: [problem for problem, row in pairs if row.split == split] for split in SPLITS}
    if empty := [split for split in SPLITS if not splits[split]]:
        raise ProblemsError(
            f"{pairs[0][1].source}: no problem has split {empty[0]!r}; each of {', '.join(SPLITS)} needs one"
        )
    return splits


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
