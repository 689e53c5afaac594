"""Samples of what is too much to run after every change: another one for every change of what is tested.

Two runs of one commit draw the same.  What is not drawn is marked ``exhaustive`` and runs in ``make test-all``.  Of the
tests that take long (``slow.txt``, which `scripts.list_slow_tests` writes) a third is drawn, by their seconds.
"""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[1]
SLOW = Path(__file__).with_name("slow.txt")
SHARE = 1 / 3
_CODE = ("pipeline_lib", "tasks", "flows", "symposium")


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


def slow_tests() -> dict[str, float]:
    """Return the seconds of the tests that take long, by their ids."""
    lines = (line.split(maxsplit=1) for line in SLOW.read_text().splitlines())
    return {name: float(seconds) for seconds, name in lines}


def draw_slow(seconds: Mapping[str, float], chance: random.Random) -> set[str]:
    """Draw of the tests that take so many ``seconds``, until a share of all their seconds is reached."""
    drawn: set[str] = set()
    for name in chance.sample(sorted(seconds), len(seconds)):
        if sum(seconds[other] for other in drawn) >= SHARE * sum(seconds.values()):
            break
        drawn.add(name)
    return drawn


def _leave_out_slow(items: Sequence[pytest.Item]) -> None:
    import pytest

    seconds = slow_tests()
    drawn = draw_slow(seconds, random.Random("".join(_digest(ROOT / folder) for folder in _CODE)))
    for item in items:
        if item.nodeid in seconds:
            item.add_marker(pytest.mark.slow)
            in_a_sample = any(item.get_closest_marker(name) for name in ("drawn", "sample"))
            if item.nodeid not in drawn and not in_a_sample:
                item.add_marker(pytest.mark.exhaustive)


def leave_out(items: Sequence[pytest.Item]) -> None:
    """Mark as ``exhaustive`` the slow tests that are not drawn, and what the two markers omit.

    They are ``sample(over, of, count=1)`` and ``drawn(group, of, count=1)``.
    Of the cases of a test that differ in the parameter ``over`` alone, which is a text, or of the tests of a group,
    ``count`` are drawn by the code below ``of``.
    """
    import pytest

    _leave_out_slow(items)
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
