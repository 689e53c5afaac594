"""Cooperation schemes over episodes: rates, success within problems, and changes, against plain Python."""

import random
from statistics import mean

import pytest
from scipy import stats

from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.schemes import MOST_FAMILIES, moves, rates, scheme_use, success


def episode(
    problem: str, sample: int, schemes: str = "", value: float = 0.0, reward: float | None = 1.0, family: str = ""
) -> EpisodeRecord:
    metrics = {"passed": value}
    return EpisodeRecord(
        problem, family or problem, sample, reward, 1, {}, metrics, 5, {"schemes": schemes.split()} if schemes else {}
    )


def drawn(problems: int, samples: int, seed: int) -> list[EpisodeRecord]:
    rng = random.Random(seed)
    return [
        episode(
            f"p{p}", s, rng.choice(["", "fallback", "decorator", "fallback decorator"]), rng.random(), family=f"f{p}"
        )
        for p in range(problems)
        for s in range(samples)
    ]


def test_a_rate_is_the_mean_over_problems_and_not_over_episodes() -> None:
    episodes = [
        episode("a", 0, "fallback"),
        episode("a", 1),
        episode("a", 2),
        episode("a", 3),
        episode("b", 0, "fallback"),
    ]
    found = rates(episodes, ["fallback"], 0.95)["fallback"]
    assert found.value == pytest.approx((1 / 4 + 1) / 2)
    assert found.low is not None and found.high is not None and 0 <= found.low < found.value < found.high <= 1
    lost = [*episodes, episode("c", 0, "fallback", reward=None)]
    assert rates(lost, ["fallback"], 0.95)["fallback"] == found, (
        "an episode that the infrastructure lost does not count"
    )


def test_episodes_with_a_scheme_are_compared_with_others_of_the_same_team_and_problem() -> None:
    """An easy problem on which everybody uses the scheme, and a better team that uses it more, decide nothing."""
    easy = [episode("easy", s, "fallback", 1.0) for s in range(4)]
    weak = [episode("a", s, "fallback" * (s == 0), 0.1) for s in range(4)]
    strong = [episode("a", s, "fallback" * (s > 0), 0.9) for s in range(4)]
    (found,) = success([[*easy, *weak], strong], ["fallback"], "passed", 0.95)
    assert found.problems == 1 and found.test.estimate == pytest.approx(0, abs=1e-12)
    pooled = [*easy, *weak, *strong]
    with_it = [e.metrics["passed"] for e in pooled if e.details]
    assert mean(with_it) > mean(e.metrics["passed"] for e in pooled if not e.details) + 0.3, "pooled it would seem so"


def test_success_is_a_paired_test_over_problems_corrected_for_all_schemes() -> None:
    episodes = drawn(12, 8, 3)
    found = {result.scheme: result for result in success([episodes], ["decorator", "fallback"], "passed", 0.95)}
    p_values = {}
    for name, result in found.items():
        differences = []
        for problem in sorted({e.problem for e in episodes}):
            own = [e for e in episodes if e.problem == problem]
            sides = [
                [e.metrics["passed"] for e in own if (name in e.details.get("schemes", [])) == side] for side in (1, 0)
            ]
            if all(sides):
                differences.append(mean(sides[0]) - mean(sides[1]))
        expected = stats.ttest_1samp(differences, 0)
        assert result.problems == len(differences)
        assert result.test.estimate == pytest.approx(mean(differences))
        assert result.test.p == pytest.approx(expected.pvalue)
        p_values[name] = float(expected.pvalue)
    low, high = sorted(p_values, key=lambda name: p_values[name])
    assert found[low].p_adjusted == pytest.approx(min(1, 2 * p_values[low]))
    assert found[high].p_adjusted == pytest.approx(max(p_values[high], min(1, 2 * p_values[low])))


def test_a_scheme_that_no_problem_shows_with_and_without_is_left_out() -> None:
    assert success([[episode("a", 0, "fallback"), episode("b", 0)]], ["fallback"], "passed", 0.95) == ()


def test_changes_are_counted_by_problem_and_draw() -> None:
    base = [episode("a", 0), episode("a", 1, "fallback"), episode("b", 0, reward=None)]
    first = [episode("a", 0, "decorator fallback"), episode("a", 1, "fallback"), episode("b", 0, "fallback")]
    second = [episode("a", 1), episode("a", 0), episode("a", 2)]
    assert moves(base, [first, second]) == {
        ("fallback", "fallback"): 0.25,
        ("fallback", "none"): 0.25,
        ("none", "decorator + fallback"): 0.25,
        ("none", "none"): 0.25,
    }


def test_everything_is_given_by_team_family_and_checkpoint() -> None:
    selected = {0: drawn(20, 4, 1), 1: drawn(20, 4, 2)}
    base = drawn(20, 4, 0)
    use = scheme_use(base, selected, {0: {10: base, 20: selected[0]}, 1: {10: base}}, "passed", 0.9)
    assert use is not None and use.names == ("decorator", "fallback")
    assert list(use.teams) == ["base", "selected", "seed 0", "seed 1"]
    assert use.teams["selected"]["fallback"].value == pytest.approx(
        mean(use.teams[f"seed {seed}"]["fallback"].value or 0 for seed in (0, 1))
    )
    assert len(use.families) == MOST_FAMILIES and use.further_families == 20 - MOST_FAMILIES
    assert sorted(use.checkpoints) == [10, 20] and sorted(use.runs[0]) == [10, 20] and sorted(use.runs[1]) == [10]
    assert use.checkpoints[20]["fallback"].value == use.runs[0][20]["fallback"]
    assert sum(use.moves.values()) == pytest.approx(1)
    nobody = [episode("a", 0)]
    assert scheme_use(nobody, {0: nobody}, {}, "passed", 0.9) is None
