"""Samples of what is too much to run after every change: another one for every change of what is tested.

Two runs of one commit draw the same.  What is not drawn is marked ``exhaustive`` and runs in ``make test-all``.
"""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

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


def leave_out(items: Sequence[pytest.Item]) -> None:
    """Mark as ``exhaustive`` what the markers ``sample(over, of, count=1)`` and ``drawn(group, of, count=1)`` omit.

    Of the cases of a test that differ in the parameter ``over`` alone, which is a text, or of the tests of a group,
    ``count`` are drawn by the code below ``of``.
    """
    import pytest

    groups = defaultdict(list)
    for item in items:
        if marker := item.get_closest_marker("drawn"):
            groups[marker.args, marker.kwargs.get("count", 1)].append(item)
    for ((group, source), count), members in groups.items():
        # Each test has a number of its own, so that who runs some of a group meets those of a whole run among them.
        members.sort(key=lambda item: draw(f"{group} {item.nodeid}", source).random())
        for item in members[count:]:
            item.add_marker(pytest.mark.exhaustive)
    alike = defaultdict(list)
    for item in items:
        marker = item.get_closest_marker("sample")
        case = getattr(item, "callspec", None)
        if marker is not None and case is not None and marker.args[0] in case.params:
            over, source = marker.args
            test = item.nodeid.replace(str(case.params[over]), "", 1)
            alike[test, source, marker.kwargs.get("count", 1)].append(item)
    for (test, source, count), cases in alike.items():
        drawn = draw(test, source).sample(range(len(cases)), min(count, len(cases)))
        for number, item in enumerate(cases):
            if number not in drawn:
                item.add_marker(pytest.mark.exhaustive)
