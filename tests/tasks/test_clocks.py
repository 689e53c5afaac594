"""Clocks that differ, as answers over HTTP tell; what real servers say is seen in tests/flows/test_pool.py."""

import time
from email.utils import formatdate

import pytest

from tasks.services import clocks

NOW = 1_800_000_000.4


@pytest.mark.parametrize(
    ("ahead", "least", "most"), [(3600.0, 3598.0, 3600.0), (-3600.0, -3600.5, -3598.0), (0.0, 0, 0)]
)
def test_the_difference_is_that_which_is_left_if_the_answer_took_as_long_as_it_may(
    ahead: float, least: float, most: float
) -> None:
    date = formatdate(NOW - ahead, usegmt=True)
    assert least <= clocks.ahead_s(date, NOW - 0.5, NOW + 0.2) <= most


def test_an_answer_that_took_long_or_has_no_date_is_no_difference() -> None:
    assert clocks.ahead_s(formatdate(NOW + 50, usegmt=True), NOW, NOW + 100) == 0
    assert clocks.ahead_s("", NOW, NOW) == clocks.ahead_s("yesterday", NOW, NOW) == 0


class RefusedError(Exception):
    """What S3 answers to a question that has no room for words."""

    def __init__(self, date: str) -> None:
        super().__init__("Forbidden")
        self.response = {"ResponseMetadata": {"HTTPHeaders": {"date": date}}}


@pytest.mark.parametrize(
    ("ahead", "says"),
    [
        (3600.0, "is 60 min ahead of that of the store; set"),
        (-3600.0, "is 60 min behind that of the store; set"),
        (60.0, ""),
    ],
)
def test_a_refusal_without_words_is_one_of_the_clock_if_that_is_far_off(
    ahead: float, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW)
    try:
        try:
            raise RefusedError(formatdate(NOW - ahead, usegmt=True))
        except RefusedError as error:
            raise PermissionError("Forbidden") from error
    except PermissionError as error:
        told = clocks.of_error(error, "the store")
    assert says in told and bool(says) == bool(told)
    assert clocks.of_error(PermissionError("Forbidden"), "the store") == ""
