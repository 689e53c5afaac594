"""Values cross as plain data, and nothing a program sends does more than that."""

import enum
from array import array
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_lib.sandbox.inside import messages, values
from pipeline_lib.sandbox.inside.values import BadValue

ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
)
HASHABLE = st.recursive(ATOMS, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=5)
PLAIN = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(HASHABLE, inner, max_size=4)
        | st.sets(HASHABLE, max_size=4)
    ),
    max_leaves=20,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=5)
    | st.dictionaries(st.sampled_from([*"ab", "tuple", "dict", "set", "int", "bytes", "range", "complex", "Decimal",
                                       "Fraction", "deque", "iterator", "keys", "items", "values", "frozenset",
                                       "bytearray", "date", "namedtuple", "array.array", "slice",
                                       "constant"]), inner, max_size=2),
    max_leaves=20,
)  # fmt: skip
BUILTINS = (
    type(None), bool, int, float, str, bytes, bytearray, complex, list, tuple, dict, set, frozenset, range, deque,
    date, Decimal, Fraction, type({}.keys()), type({}.values()), type({}.items()), type(iter([])), array,
    slice, type(...), type(NotImplemented),
)  # fmt: skip


def there_and_back(value: Any) -> Any:
    reply = messages.write_reply(1 << 30, 1, "value", values.encode(value))
    return values.decode(messages.read_reply(reply)[2])


def exact(value: Any) -> Any:
    """Return something that is equal only if types are equal too."""
    if isinstance(value, list | tuple):
        return type(value), [exact(item) for item in value]
    if isinstance(value, dict):
        return dict, {key: exact(item) for key, item in value.items()}, [exact(key) for key in value]
    return type(value), repr(value) if isinstance(value, float | complex) else value


@given(PLAIN)
@settings(max_examples=50, deadline=None)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    assert exact(there_and_back(value)) == exact(value)


@given(PLAIN)
@settings(max_examples=50, deadline=None)
def test_requests_arrive_as_they_were(value: Any) -> None:
    number, form = messages.read_request(messages.write_request(7, values.encode(value)))
    assert number == 7
    assert exact(values.decode(form)) == exact(value)


class Sly(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


class Colour(enum.IntEnum):
    RED = 3


@pytest.mark.parametrize(
    ("value", "arrives"),
    [
        (Counter("aab"), Counter({"a": 2, "b": 1})),
        (OrderedDict(b=1, a=2), OrderedDict(b=1, a=2)),
        (OrderedDict(a=1).keys(), {"a": 1}.keys()),
        (deque([1, 2], maxlen=3), deque([1, 2])),
        (Decimal("1.10"), Decimal("1.10")),
        (Fraction(1, 3), Fraction(1, 3)),
        (range(1, 9, 2), range(1, 9, 2)),
        (10**400, 10**400),
        (array("i", [1, -2]), array("i", [1, -2])),
        (array("u", "ab"), array("u", "ab")),
        (array("Q", [2**64 - 1]), array("Q", [2**64 - 1])),
        (slice(1, None, 2), slice(1, None, 2)),
        (..., ...),
        (NotImplemented, NotImplemented),
        ("\ud800", "\ud800"),
    ],
)
def test_what_becomes_of_other_values(value: Any, arrives: Any) -> None:
    found = there_and_back(value)
    assert type(found) is type(arrives)
    assert found == arrives


def test_iterators_and_views() -> None:
    assert list(there_and_back(x * 2 for x in range(3))) == [0, 2, 4]
    assert there_and_back(map(str, [1])) != ["1"]
    assert there_and_back({1: 2}.keys()) == {1: 0}.keys()
    assert sorted(there_and_back({1: 2, 3: 4}.values())) == [2, 4]
    assert there_and_back({1: 2}.items()) == {1: 2}.items()


@pytest.mark.parametrize(
    "value",
    [
        *(object(), len, int, lambda: 0, slice([]), [object()], {1: print}),
        *(Sly(5), [Sly(5)], Colour.RED, type("S", (str,), {})("abc"), type("L", (list,), {})([1, 2]), numpy.str_("ab")),
        *(defaultdict(int, a=1), numpy.int64(4), numpy.float64(0.5), numpy.array([[1, 2]])),
        *(datetime(2024, 1, 2, tzinfo=ZoneInfo.no_cache("UTC")), ZoneInfo.no_cache("Europe/Berlin")),
    ],
)
def test_what_cannot_leave(value: Any) -> None:
    with pytest.raises(BadValue) as caught:
        values.encode(value)
    assert caught.value.kind == "type"


def test_depth_size_and_cycles_are_bounded() -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: Any = []
    for _ in range(values.MAX_DEPTH + 1):
        deep = [deep]
    for value in (circle, deep, iter(lambda: 0, 1)):
        with pytest.raises(BadValue) as caught:
            values.encode(value)
        assert caught.value.kind == "size"
    with pytest.raises(BadValue):
        messages.write_reply(100, "a" * 200)


@given(JSON)
@settings(max_examples=200, deadline=None)
def test_any_json_decodes_to_builtins_or_is_refused(form: Any) -> None:
    try:
        value = values.decode(form)
    except BadValue:
        return
    pending = [value]
    while pending:
        item = pending.pop()
        assert type(item) in BUILTINS
        if isinstance(item, list | tuple | set | frozenset | deque):
            pending.extend(item)
        elif isinstance(item, dict):
            pending.extend([*item, *item.values()])


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_a_reply_or_refused(data: bytes) -> None:
    try:
        number, kind, *_ = messages.read_reply(data)
    except BadValue:
        return
    assert type(number) is int
    assert type(kind) is str


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b'[1, "value", ' + b"[" * 5000,
        b'[1, "value", ' + b"9" * 100_000 + b"]",
        b'{"a": 1}',
        b'[true, "value", 1]',
        b'[1.0, "value", 1]',
        b"[1, 2, 3]",
        b"[1]",
        b"\xff\xfe",
        b"NaN",
    ],
)
def test_forged_replies(data: bytes) -> None:
    with pytest.raises(BadValue):
        messages.read_reply(data)


@pytest.mark.parametrize(
    "form",
    [
        {"set": [[1]]}, {"dict": [[[1], 2]]}, {"dict": [[1]]}, {"dict": 3}, {"int": 5}, {"int": "zz"}, {"bytes": "g"},
        {"range": [1, 2, 0]}, {"range": [1.5]}, {"complex": ["a", 1]}, {"complex": []}, {"Fraction": [1, 0]},
        {"Decimal": "x"}, {"deque": [1, 2]}, {"os": "system"}, {"tuple": {}}, {}, {"a": 1, "b": 2}, {"iterator": 1},
        {"array.array": ["i", [2**31]]}, {"array.array": ["ii", []]}, {"array.array": ["w", []]},
        {"array.array": ["i", "ab"]}, {"array.array": ["u", [1]]}, {"array.array": ["i"]}, {"array.array": [1, []]},
        {"constant": "print"}, {"constant": ["Ellipsis"]}, {"slice": []}, {"slice": [1, 2, 3, 4]},
    ],
)  # fmt: skip
def test_forged_values(form: Any) -> None:
    with pytest.raises(BadValue):
        values.decode(form)


def test_named_tuples_keep_their_names() -> None:
    Point = namedtuple("Point", "a b")

    class Odd(Point):
        pass

    class Typed(NamedTuple):
        a: int

        def twice(self) -> int:
            return 2 * self.a

    renamed = namedtuple("Renamed", "a")
    renamed._asdict = dict  # type: ignore[method-assign, assignment]
    for value in (Odd(1, 2), Typed(1), renamed(1)):
        with pytest.raises(BadValue):
            values.encode(value)
    found = there_and_back(Point(1, [2]))
    assert (found.a, found.b, found == (1, [2]), found == (1, 2)) == (1, [2], True, False)
    for fields in (["a", "a"], ["__import__('os')", "b"], ["a"], [1, 2], [["a"], "b"], ["a"] * 300):
        with pytest.raises(BadValue):
            values.decode({"namedtuple": ["P", fields, [1, 2]]})
    with pytest.raises(BadValue):
        values.decode({"namedtuple": ["P; import os", ["a", "b"], [1, 2]]})


def test_no_two_values_that_are_no_numbers_are_the_same() -> None:
    first, second = there_and_back([float("nan")] * 2)
    assert first is not second and first != second


def test_dates_are_plain() -> None:
    east = timezone(timedelta(hours=1, seconds=1))
    for value in (
        *(date(2024, 2, 29), datetime(2024, 1, 2, 3, 4, 5, 6), time(1, 2, 3, 4), timedelta(days=-1, seconds=5)),
        *(datetime(2024, 1, 2, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=east), time(1, tzinfo=east)),
        *(datetime(2024, 1, 2, tzinfo=ZoneInfo("Asia/Tokyo"), fold=1), time(2, fold=1), UTC, east, ZoneInfo("UTC")),
    ):
        assert there_and_back(value) == value
        assert repr(there_and_back(value)) == repr(value)
    for form in (
        {"date": [2023, 2, 29]},
        {"datetime": ["a"]},
        {"timedelta": [10**30]},
        {"time": [1.5]},
        {"date": [1, 1, 1, 0]},
        {"time": [1, 1, 1, 1, 0, 10**15]},
        {"time": [1, 1, 1, 1, 2]},
        {"timedelta": [1, 1, 1, "UTC"]},
        {"timezone": [10**15]},
        {"timezone": []},
        *(
            {"ZoneInfo": [name]}
            for name in ("", "Europe", "../zoneinfo/UTC", "/etc/passwd", "Europe\0", "no", "x" * 10**5)
        ),
    ):
        with pytest.raises(BadValue):
            values.decode(form)
