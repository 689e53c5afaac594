"""Deals the problems of a dataset to the splits."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.problems.splits import SPLITS
from pipeline_lib.seam.task import Problem
from pipeline_lib.storage import digest

P = TypeVar("P", bound=Problem)


def deal(problems: Sequence[P], validation: float, test: float, seed: int) -> dict[str, list[P]]:
    """Deal problems to the splits by their shares, in (0, 1); copies of one problem stay together.

    Raises:
        ProblemsError: a split gets none.
    """
    groups: dict[str, list[P]] = {}
    for problem in problems:
        groups.setdefault(problem.content_hash, []).append(problem)
    order = list(groups.values())
    random.Random(digest(["split", seed])).shuffle(order)
    sizes = {"validation": validation, "test": test}
    splits: dict[str, list[P]] = {}
    start = 0
    for split, share in sizes.items():
        end = start + round(share * len(order))
        splits[split] = [problem for group in order[start:end] for problem in group]
        start = end
    splits["train"] = [problem for group in order[start:] for problem in group]
    for split, share in {**sizes, "train": 1 - sum(sizes.values())}.items():
        if not splits[split]:
            raise ProblemsError(
                f"problems.{split}: {len(order)} different problems leave none for the {split} split "
                f"(share {share:.2f}); use a larger source or other shares"
            )
    return {split: splits[split] for split in SPLITS}
