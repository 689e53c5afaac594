"""Divide the problems of a dataset among the splits."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from typing import TypeVar

from pipeline_lib.environment_api.task import Problem
from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.problems.rows import Row
from pipeline_lib.problems.splits import SPLITS
from pipeline_lib.storage import digest

log = logging.getLogger("symposium.problems")

P = TypeVar("P", bound=Problem)


Found = Sequence[tuple[P, Row]]
"""Problems with the rows they were made from."""


def split_problems(pairs: Found[P], validation: float, test: float, seed: int) -> dict[str, list[P]]:
    """Divide problems among the splits: as their file says, else by the shares; of copies only the first is used.

    A warning names the copies that are left out.

    Args:
        found: at least one problem.
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


def _without_copies(pairs: Found[P]) -> list[tuple[P, Row]]:
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


def _check_ids(pairs: Found[P]) -> None:
    first_seen: dict[str, Row] = {}
    for problem, row in pairs:
        if (other := first_seen.setdefault(problem.id, row)) is not row:
            raise ProblemsError(
                f"{row.place}: problem {problem.id!r} has the id of another one ({other.place}); results are kept by "
                "id: rename one of them"
            )


def _as_the_file_says(pairs: Found[P]) -> dict[str, list[P]]:
    splits = {split: [problem for problem, row in pairs if row.split == split] for split in SPLITS}
    if empty := [split for split in SPLITS if not splits[split]]:
        raise ProblemsError(
            f"{pairs[0][1].source}: no problem has split {empty[0]!r}; each of {', '.join(SPLITS)} needs one"
        )
    return splits
