"""Divide the problems of a dataset among the splits."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from typing import TypeVar

from pipeline_lib.environment_api.task import Problem
from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.problems.splits import SPLITS
from pipeline_lib.storage import digest

log = logging.getLogger("symposium.problems")

P = TypeVar("P", bound=Problem)


def split_problems(problems: Sequence[P], validation: float, test: float, seed: int) -> dict[str, list[P]]:
    """Divide problems among the splits by their shares, in (0, 1); of copies of one problem, only the first is used.

    A warning names the copies that are left out.

    Raises:
        ProblemsError: a split would be empty.
    """
    groups: dict[str, list[P]] = {}
    for problem in problems:
        groups.setdefault(problem.content_hash, []).append(problem)
    order = [group[0] for group in groups.values()]
    if copies := [f"{copy.id} (of {group[0].id})" for group in groups.values() for copy in group[1:]]:
        log.warning("%d of %d problems are copies and left out: %s", len(copies), len(problems), ", ".join(copies))
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
