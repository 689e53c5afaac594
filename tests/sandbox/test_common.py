"""Containers that both sides know: what a program may say of them, and who still holds them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_lib.sandbox import calls
from pipeline_lib.sandbox.inside import common
from pipeline_lib.sandbox.inside.common import Common
from pipeline_lib.sandbox.inside.plain import BadValue


def asked(known: Common, *args: Any) -> None:
    """Let the judge's side know the arguments of a call."""
    calls.request(1, list(args), {}, known, [])


@pytest.mark.parametrize(
    "rest",
    [
        [{"cell": [7]}, [], []],  # a number that nobody has given
        [{"cell": [2, [1]]}, [], []],  # one that is not the program's to give
        [{"cell": [0, [1]]}, [], []],  # one that is taken
        [{"cell": [1, {"tuple": []}]}, [], []],
        [{"cell": [1, {"cell": [3, []]}]}, [], []],
        [{"cell": []}, [], []],
        [{"cell": [[]]}, [], []],
        [1, [[0, {"dict": []}]], []],  # a list becomes a dict
        [1, [[0, {"array.array": ["i", [5]]}]], []],
        [{"cell": [1, {"array.array": ["i", [1 << 40]]}]}, [], []],
        [1, [[9, []]], []],
        [1, [[0]], []],
        [1, [], [9]],
        [1, [], None],
        [1, 2, 3],
        [{"set": [{"cell": [0]}]}, [], []],
    ],
)
def test_what_a_program_says_of_containers_is_a_value_or_refused(rest: list[Any]) -> None:
    known, ours = Common(0), [5]
    asked(known, ours)
    with pytest.raises(BadValue):
        calls.value(rest, known)
    assert ours == [5]


FORMS = st.recursive(
    st.none() | st.integers(-2, 9) | st.text(max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(
            st.sampled_from(["cell", "dict", "tuple", "set", "deque", "array.array"]), st.lists(inner, max_size=3)
        ).map(lambda pair: {pair[0]: pair[1]})
    ),
    max_leaves=8,
)


@given(st.lists(FORMS, min_size=1, max_size=3))
@settings(max_examples=300, deadline=None)
def test_no_message_breaks_the_table(rest: list[Any]) -> None:
    known, ours = Common(0), [[1], {"a": [2]}]
    asked(known, ours)
    try:
        calls.value(rest, known)
    except BadValue:
        return
    assert type(ours) is list
    assert set(known.cells) <= set(range(-2, 10))
    assert all(known.number(cell) == number for number, cell in known.cells.items())
    asked(known, ours)


def test_a_value_that_holds_itself_over_and_over_is_refused() -> None:
    form: Any = {"cell": [1, []]}
    for number in range(3, 80, 2):
        form = {"cell": [number, [form, {"cell": [number - 2]}]]}
    with pytest.raises(BadValue, match="same parts too often"):
        calls.value([form, [], []], Common(0))


def test_containers_are_forgotten_when_one_side_holds_them_alone() -> None:
    known, ours = Common(0), [[1], [2]]
    asked(known, ours)
    assert len(known.cells) == 3
    inner = ours[1]
    del ours
    known.note()
    assert known.prune() == [0, 2]
    assert known.changes() == []
    inner.append(3)
    assert [known.cells[4], len(known.cells)] == [[2, 3], 1]


def test_only_the_newest_containers_are_known_for_long() -> None:
    known, ours = Common(0), [[n] for n in range(common.MOST + 10)]
    asked(known, *ours)
    assert known.prune() == list(range(0, 20, 2))
    assert len(known.cells) == common.MOST


def test_only_values_that_somebody_else_holds_are_shared() -> None:
    kept = [1]
    assert not common.is_shared([[[1], {"a": [2]}, (3, [4])]])
    assert common.is_shared([kept])
    assert common.is_shared([(1, [kept])])
    row = [0]
    twice = [[row, row]]
    del row
    assert common.is_shared(twice)
    assert not common.is_shared([(1, 2, "a", None)])
