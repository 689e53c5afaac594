import math

import numpy as np
import pytest

from pipeline_lib.evaluation.planning import Variances, expected_maximum, requirements, variances
from pipeline_lib.evaluation.results import EvaluationError
from tests.evaluation.build import episode, team


@pytest.mark.parametrize(
    ("count", "value"), [(1, 0.0), (2, 0.564), (5, 1.163), (10, 1.539), (15, 1.736), (20, 1.867), (50, 2.249)]
)
def test_expected_maximum(count: int, value: float) -> None:
    assert expected_maximum(count) == pytest.approx(value, abs=5e-4)


def test_millers_example_in_the_table() -> None:
    pilot = Variances(between=1 / 9, within_a=1 / 6, within_b=1 / 6)
    rows = requirements(pilot, [0.03], samples=[1, 10], runs=[1])
    # 3876 and 1260 by Miller's normal approximation (tests/evaluation/test_power.py), two more by the t test, as by
    # statsmodels' TTestPower.solve_power.
    assert [row["problems"] for row in rows] == [3878, 1262]
    assert rows[0]["problems_new_runs"] is None
    assert rows[0]["test_episodes"] == 3878 * 2
    assert rows[1]["sweep_episodes"] == 1262 * 10 * 9
    assert rows[0]["optimism"] == pytest.approx(1.4236 * math.sqrt(1 / 6 / 3878), rel=1e-3)


def test_other_training_runs_need_more_and_sometimes_too_much() -> None:
    pilot = Variances(between=0.02, within_a=0.1, within_b=0.1, runs=0.001)
    three, ten = requirements(pilot, [0.06], samples=[4], runs=[3, 10])
    assert three["problems_new_runs"] is None  # run-to-run noise alone hides the difference
    assert ten["problems"] < ten["problems_new_runs"] < 10_000


def test_variances_are_recovered_from_a_pilot() -> None:
    rng = np.random.default_rng(0)
    base_means = rng.random(1500)
    gain = rng.normal(0.2, 0.1, 1500)
    base = team(base_means, 4, 1, noise=0.3)
    runs = {
        s: team(base_means + gain + shift, 4, s + 2, noise=0.2)
        for s, shift in enumerate((-0.05, -0.03, -0.01, 0.01, 0.03, 0.05))
    }
    found = variances(runs, base, "tests_passed")
    assert found.within_a == pytest.approx(0.04, rel=0.05)
    assert found.within_b == pytest.approx(0.09, rel=0.05)
    assert found.between == pytest.approx(0.01, rel=0.3)
    assert found.runs == pytest.approx(np.var([-0.05, -0.03, -0.01, 0.01, 0.03, 0.05], ddof=1), rel=0.2)
    assert found.clustering == pytest.approx(1.0, abs=0.01)
    assert (found.problems, found.training_runs) == (1500, 6)


def test_families_cost_problems() -> None:
    rng = np.random.default_rng(1)
    shift = rng.normal(0, 0.2, 20)[np.arange(200) % 20]
    found = variances(team(0.5 + shift, 4, 0, families=20), team([0.5] * 200, 4, 1, families=20), "tests_passed")
    assert found.clustering > 4


def test_poor_pilots_are_refused() -> None:
    with pytest.raises(EvaluationError, match="at least two problems"):
        variances(team([0.5], 4, 0), team([0.5], 4, 1), "tests_passed")
    never, always = team([0.0] * 12, 4, 0, noise=0.0), team([1.0] * 12, 4, 1, noise=0.0)
    for one, other in ((never, never), (always, never)):
        with pytest.raises(EvaluationError, match="nothing is known of its variance"):
            variances(one, other, "tests_passed")
    single = [episode("a", 0, 1.0), episode("b", 0, 0.0)]
    with pytest.raises(EvaluationError, match="one episode per problem, so the spread within a problem is unknown"):
        variances(single, single, "tests_passed")
