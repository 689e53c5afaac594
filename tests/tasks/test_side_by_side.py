"""What a running stage has left, as people read it while they wait."""

import pytest

from tasks.chain.side_by_side import left_of_stage


def test_without_a_word_from_the_stage_it_is_what_was_expected_and_never_nothing() -> None:
    assert left_of_stage(0.0, 15.0, 60.0) == 45.0
    assert left_of_stage(0.0, 58.0, 60.0) == 6.0
    assert left_of_stage(0.0, 600.0, 60.0) == 540.0  # it is late; nobody knows by how much


@pytest.mark.parametrize("start_s", [1.0, 10.0, 20.0])
def test_the_time_of_starting_up_is_not_taken_for_the_pace(start_s: float) -> None:
    first = left_of_stage(1 / 80, start_s, 60.0)  # by its pace alone, 80 steps of start_s each: up to 26 minutes
    assert 55.0 < first < 60.0 + start_s


@pytest.mark.parametrize("pace", [0.5, 1.0, 3.0])
def test_towards_the_end_it_is_the_stages_own_pace_that_counts(pace: float) -> None:
    for step in range(61, 81):
        took_s = pace * 60.0 * step / 80
        assert left_of_stage(step / 80, took_s, 60.0) == pytest.approx(pace * 60.0 - took_s, rel=0.25, abs=0.01)
