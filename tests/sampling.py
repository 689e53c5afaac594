"""Samples of what is too much to run after every change: another one for every change of what is tested.

Two runs of one commit draw the same.  What is not drawn is marked ``exhaustive`` and runs in ``make test-all``.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


@cache
def _digest(source: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(source.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def draw(purpose: str, source: str) -> random.Random:
    """Return the chance by which the sample for ``purpose`` is drawn, from the code below the folder ``source``."""
    return random.Random(_digest(ROOT / source) + purpose)


def sampled(values: Sequence[Any], count: int, purpose: str, source: str) -> list[Any]:
    """Return the values for `pytest.mark.parametrize`: ``count`` drawn ones, and the others as ``exhaustive``."""
    import pytest  # the sandbox draws its samples under interpreters that do not have it

    drawn = draw(purpose, source).sample(range(len(values)), count)
    left_out = pytest.mark.exhaustive
    return [value if n in drawn else pytest.param(value, marks=left_out) for n, value in enumerate(values)]
