import math

import numpy as np
import pytest

from pipeline_lib.evaluation.plan import problems_digest
from pipeline_lib.evaluation.results import EvaluationError
from pipeline_lib.evaluation.table import pair, tabulate
from tests.evaluation.build import episode, team


def test_values_lie_at_seed_problem_sample() -> None:
    records = {1: [episode("b", 1, 0.4), episode("a", 0, 0.1)], 0: [episode("a", 0, 0.9), episode("b", 0, None)]}
    table = tabulate(records, "tests_passed")
    assert (table.seeds, table.problems) == ((0, 1), ("a", "b"))
    assert table.values[0, 0, 0] == 0.9
    assert table.values[1, 1, 1] == 0.4
    assert np.isnan(table.values[0, 1]).all()
    assert table.lost == 1
    assert table.trained and not tabulate([episode("a", 0, 1.0)], "reward").trained


@pytest.mark.parametrize(
    ("episodes", "words"),
    [
        ([], "there are no episodes of the base; evaluate it first"),
        ({}, "there are no episodes of the base"),
        ({3: []}, "no episodes of the base of training seed 3"),
        ([episode("a", 0, 1.0), episode("a", 0, 0.5)], "episode 0 of problem a occurs twice"),
        ([episode("a", 0, 1.0, "x"), episode("a", 1, 1.0, "y")], "problem a belongs to family 'x'"),
        ([episode("a", 0, math.nan)], "'tests_passed' of episode 0 of problem a is nan"),
        ([episode("a", 0, math.inf)], r"is inf; it must be a number from -1e\+50 to 1e\+50"),
        ([episode("a", 0, -1e200)], "is -1e.200; it must be a number from"),
    ],
)
def test_bad_episodes_are_refused_in_words(episodes: object, words: str) -> None:
    with pytest.raises(EvaluationError, match=words):
        tabulate(episodes, "tests_passed", "the base")  # type: ignore[arg-type]


def test_a_pair_counts_only_with_both_sides() -> None:
    a = [episode("a", 0, 1.0), episode("a", 1, 0.0), episode("b", 0, 1.0), episode("c", 0, 1.0)]
    b = [episode("a", 0, 0.5), episode("a", 1, None), episode("b", 0, 0.5), episode("d", 0, 0.5)]
    pairing = pair(tabulate(a, "reward", "A"), tabulate(b, "reward", "B"), ("A", "B"))
    assert pairing.problems == ("a", "b")
    assert pairing.a_means.tolist() == [[1.0, 1.0]]  # sample 1 of problem a is out on both sides
    assert pairing.episodes == (2, 2)
    text = "; ".join(pairing.notes)
    assert "1 of 3 problems of A have no partner" in text
    assert "1 of 3 problems of B have no partner" in text
    assert "1 episodes of B were lost" in text
    assert "1 episodes have no partner; the means are without them" in text


def test_a_problem_lost_in_one_training_run_is_left_out_in_all() -> None:
    a = {0: [episode("a", 0, 1.0), episode("b", 0, 1.0)], 1: [episode("a", 0, 1.0), episode("b", 0, None)]}
    b = [episode("a", 0, 0.0), episode("b", 0, 0.0)]
    pairing = pair(tabulate(a, "reward"), tabulate(b, "reward"))
    assert pairing.problems == ("a",)
    assert pairing.aligned and pairing.seeds == (0, 1)
    assert pairing.episodes == (2, 1)  # the untrained team's episodes are counted once
    assert "1 of 2 problems have no complete pair" in "; ".join(pairing.notes)


def test_different_seeds_are_not_aligned_and_fewer_samples_are_noted() -> None:
    a = {0: team([0.1, 0.2], 4, 0), 1: team([0.1, 0.2], 4, 1)}
    b = {7: team([0.1, 0.2], 2, 2)}
    pairing = pair(tabulate(a, "reward"), tabulate(b, "reward"))
    assert not pairing.aligned
    assert pairing.a.shape == (2, 2, 4) and pairing.b.shape == (1, 2, 2)
    assert "has up to 4 episodes per problem and the second team 2: their means over all" in "; ".join(pairing.notes)


def test_with_other_numbers_of_samples_their_order_changes_nothing() -> None:
    """One of two attempts of each problem succeeds; the first rows of a file sorted by value are the better ones."""
    base = tabulate([episode(f"p{n}", 0, n % 2) for n in range(10)], "reward")
    for first, second in ((1.0, 0.0), (0.0, 1.0)):
        attempts = [episode(f"p{n}", k, value) for n in range(10) for k, value in ((0, first), (1, second))]
        pairing = pair(tabulate(attempts, "reward"), base)
        assert pairing.aligned and pairing.episodes == (20, 10)
        assert pairing.a_means.tolist() == [[0.5] * 10]
        assert pairing.a_means.mean() == pairing.b_means.mean()


def test_samples_that_are_numbered_in_another_way_are_not_counted_as_more() -> None:
    a = tabulate([episode("a", sample, 1.0) for sample in (1, 2)], "reward")
    b = tabulate([episode("a", sample, 0.0) for sample in (0, 1)], "reward")
    pairing = pair(a, b)
    assert pairing.a_means.tolist() == [[1.0]] and pairing.b_means.tolist() == [[0.0]]
    assert "up to 2 episodes per problem and the second team 2: their means" in "; ".join(pairing.notes)


def test_nothing_in_common_is_refused() -> None:
    a, b = tabulate([episode("a", 0, 1.0)], "reward"), tabulate([episode("b", 0, 1.0)], "reward")
    with pytest.raises(EvaluationError, match="no problem in common; evaluate both on the same split"):
        pair(a, b)
    lost = tabulate([episode("a", 0, None)], "reward")
    with pytest.raises(EvaluationError, match="that was not lost; evaluate both again"):
        pair(a, lost)
    other = tabulate([episode("a", 0, 1.0, "other")], "reward")
    with pytest.raises(EvaluationError, match=r"family 'a' for .* and 'other' for"):
        pair(a, other)


def test_digest_names_the_set_of_problems() -> None:
    assert problems_digest(["b", "a", "a"]) == problems_digest(["a", "b"]) != problems_digest(["a"])
