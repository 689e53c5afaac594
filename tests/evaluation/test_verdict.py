import dataclasses
import json
import math

import numpy as np
import pytest
from scipy import stats

from pipeline_lib.evaluation import planning
from pipeline_lib.evaluation.comparison import measure
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.evidence import constant_bounds
from pipeline_lib.evaluation.results import EvaluationError
from pipeline_lib.evaluation.sentences import p_text
from pipeline_lib.evaluation.verdict import decide
from pipeline_lib.settings.evaluate import EvaluateSettings, HeldOutSettings, SampleSettings, VerdictSettings
from tests.evaluation.build import METRICS, compare, constant_team, episode, summarise_test, team

VERDICT = VerdictSettings(resamples=2_000)
MEANS = np.random.default_rng(0).random(96) * 0.4


def trained(gain: float, seeds: tuple[int, ...] = (0, 1, 2), spread: float = 0.05, samples: int = 4):
    rng = np.random.default_rng(7)
    return {
        seed: team(MEANS + gain + spread * rng.standard_normal(MEANS.size), samples, 50 + seed, families=32)
        for seed in seeds
    }


BASE = team(MEANS, 4, 1, families=32)


def test_improved() -> None:
    found = compare(trained(0.5), BASE, VERDICT, names=("the selected team", "the base"))
    assert found.verdict == "IMPROVED"
    assert found.sentence.startswith("IMPROVED: on 96 held-out problems, hidden tests passed: ")
    assert "p < 1e-6" in found.sentence and "points (95 % interval +4" in found.sentence
    assert "significant in 3 of 3 training runs alone" in found.sentence
    assert found.difference.low < 0.5 < found.difference.high
    assert [seed.seed for seed in found.per_seed] == [0, 1, 2]
    assert found.families == 32 and found.difference.df == 31
    assert found.effect.low < found.effect.g < found.effect.high
    assert found.improvement.value > 0.9
    assert found.new_runs.p < 0.001
    json.dumps(found.to_json(), allow_nan=False)


def test_worse_is_the_mirror_image() -> None:
    a, b = compare(trained(0.5), BASE, VERDICT), compare(BASE, trained(0.5), VERDICT)
    assert b.verdict == "WORSE"
    assert b.difference.estimate == pytest.approx(-a.difference.estimate)
    assert b.difference.p == pytest.approx(a.difference.p)
    assert b.effect.g == pytest.approx(-a.effect.g)
    assert b.improvement.value == pytest.approx(1 - a.improvement.value)
    assert b.new_runs.p == pytest.approx(a.new_runs.p)


@pytest.mark.parametrize("count", [2, 12, 40])
def test_the_probability_that_one_is_better_lies_in_its_range(count: int) -> None:
    rng = np.random.default_rng(count)
    values = rng.random(count) * 0.4
    found = compare(team(values + rng.random(count) * 0.6, 4, 1), team(values, 4, 1), VERDICT)
    assert found.improvement.value > 0.5
    if count == 2:
        assert found.difference.p is found.improvement.low is found.improvement.high is None
        assert found.improvement.degenerate == found.difference.degenerate
    else:
        assert 0 <= found.improvement.low < found.improvement.value < found.improvement.high <= 1


def test_equivalent_even_when_the_tiny_difference_is_real() -> None:
    found = compare(team(MEANS + 0.01, 64, 2), team(MEANS, 64, 1), VERDICT)
    assert found.difference.p < 0.05
    assert found.verdict == "EQUIVALENT"
    assert "smaller than the 5.0 points that would matter (95 % interval" in found.sentence


def test_inconclusive_says_what_could_have_been_seen_and_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {0: [r for r in trained(0.06, (0,))[0] if r.problem < "p012"]}
    found = compare(few, BASE, VERDICT)
    assert found.verdict == "INCONCLUSIVE"
    assert found.detectable > 0.05
    assert found.problems_for_margin > 12
    assert "find a difference of" in found.sentence
    assert f"needs {found.problems_for_margin} problems" in found.sentence
    assert "no effect" not in found.sentence and "no difference" not in found.sentence
    se = found.difference.se
    # 2.80, more for t with 11 degrees of freedom, for the bias of se and for what skewness may cost.
    monkeypatch.setattr(planning, "missing", lambda families, alpha: 0.0)  # as if no kind of family could be missing
    tested = decide({"": found})[""]
    assert 3.02 * se < tested.detectable < 3.4 * se < found.detectable


def test_paired_and_clustered_like_textbook_on_problem_means() -> None:
    rng = np.random.default_rng(3)
    x, half = rng.random(20), rng.random(10)
    y = x + np.concatenate([half, 0.6 - half])  # differences that lean to no side, or Student's test would be widened
    a = [episode(f"p{i}", 0, float(v)) for i, v in enumerate(x)]
    b = [episode(f"p{i}", 0, float(v)) for i, v in enumerate(y)]
    found = compare(a, b, VERDICT)
    order = sorted(range(20), key=lambda i: f"p{i}")
    related = stats.ttest_rel(x[order], y[order])
    assert found.difference.p == pytest.approx(related.pvalue)
    assert found.effect.d == pytest.approx((x.mean() - y.mean()) / math.sqrt((x.var(ddof=1) + y.var(ddof=1)) / 2))
    assert found.per_seed == ()
    assert "was not" not in found.new_runs.degenerate and "neither team was trained" in found.new_runs.degenerate


def test_families_widen_the_interval() -> None:
    rng = np.random.default_rng(1)
    shift = rng.normal(0.1, 0.4, 16)

    def teams(families: int) -> tuple[list[EpisodeRecord], list[EpisodeRecord]]:
        means = np.full(64, 0.3)
        return team(means + shift[np.arange(64) % 16], 4, 2, families), team(means, 4, 3, families)

    clustered, single = compare(*teams(16), VERDICT), compare(*teams(0), VERDICT)
    assert clustered.difference.estimate == pytest.approx(single.difference.estimate)
    assert clustered.difference.se > 1.5 * single.difference.se
    assert "of 16 families carry the variation" in clustered.sentence


def test_holm_runs_over_the_family() -> None:
    weak, base = {0: team(MEANS[:24] + 0.26, 2, 50, noise=0.6)}, team(MEANS, 4, 1)
    alone = compare(weak, base, VERDICT)
    assert 0.01 < alone.p_adjusted < 0.05 and alone.verdict == "IMPROVED"
    one = measure(weak, base, VERDICT, "tests_passed", ("a", "b"), metrics=METRICS)
    family = decide({str(i): one for i in range(6)})
    assert family["0"].p_adjusted == pytest.approx(6 * alone.p_adjusted)
    assert family["0"].verdict == "INCONCLUSIVE"
    assert "after Holm's correction for 6 comparisons" in family["0"].sentence


@pytest.mark.parametrize(
    ("a", "b", "verdict", "words"),
    [
        (constant_team([0.0] * 96), constant_team([0.0] * 96), "EQUIVALENT", "between -3.8 points and +3.8 points"),
        (constant_team([0.0] * 20), constant_team([0.0] * 20), "INCONCLUSIVE", "no variation between families"),
        (constant_team([1.0] * 20), constant_team([0.0] * 20), "IMPROVED", "between +66.3 points and +100.0 points"),
        (constant_team([1.0] * 3), constant_team([0.0] * 3), "INCONCLUSIVE", "no variation between families"),
        (constant_team([1.0] * 20, 2, False), BASE, "INCONCLUSIVE", "one observation (n_eff = 1)"),
        (constant_team([1.0] * 20, 2, False), constant_team([0.0] * 20), "INCONCLUSIVE", "n_eff = 1"),
        (team([0.5], 9, 0), team([0.1], 9, 1), "INCONCLUSIVE", "All problems belong to one family"),
    ],
)
def test_degenerate_data_get_plain_words(
    a: list[EpisodeRecord], b: list[EpisodeRecord], verdict: str, words: str
) -> None:
    b = [EpisodeRecord(**{**r.to_json(), "family": r.problem}) for r in b]
    found = compare(a, b, VERDICT)
    assert found.verdict == verdict
    assert words in found.sentence
    assert "nan" not in json.dumps(found.to_json(), allow_nan=False).lower()
    assert found.p_adjusted is None or "n_eff" in found.degenerate
    assert "p <" not in found.sentence


def test_rewards_without_known_range_get_no_interval_without_variation() -> None:
    found = compare(constant_team([3.0] * 50), constant_team([1.0] * 50), VERDICT, metric="reward")
    assert found.verdict == "INCONCLUSIVE"
    assert "between +" not in found.sentence


def test_constant_bounds_are_the_rule_of_three() -> None:
    low, high = constant_bounds(0.0, 100, 0.05, 1.0)
    assert (low, high) == (pytest.approx(-0.0362, abs=1e-4), pytest.approx(0.0362, abs=1e-4))  # 3.69 / n, two-sided
    assert constant_bounds(1.0, 100, 0.05, 1.0)[0] == pytest.approx(1 - 2 * 0.0362, abs=1e-4)


def test_a_team_that_fails_a_guard_is_never_improved() -> None:
    found = compare(trained(0.5), BASE, VERDICT, faults=("training seed 0: meals share is 0",))
    assert found.verdict == "INCONCLUSIVE"
    assert "fails a guard: training seed 0: meals share is 0" in found.sentence


def test_one_training_run_speaks_for_its_checkpoint_only() -> None:
    found = compare(trained(0.5, (4,)), BASE, VERDICT)
    assert found.verdict == "IMPROVED"
    assert found.new_runs.p is None
    assert "needs at least 3; this result is about the checkpoints tested" in found.new_runs.degenerate


def test_runs_that_disagree_are_seen_by_the_wider_claim_only() -> None:
    rng = np.random.default_rng(0)
    runs = {s: team(MEANS + g, 8, s, families=32) for s, g in enumerate((0.5, 0.02, 0.1))}
    found = compare(runs, BASE, VERDICT)
    assert found.verdict == "IMPROVED" and found.difference.p < 1e-6
    assert found.new_runs.p > 0.05
    assert found.new_runs.df < 3
    unpaired = compare(trained(0.5), {s + 10: team(MEANS, 4, int(rng.integers(99)), 32) for s in range(3)}, VERDICT)
    assert unpaired.new_runs.n == (3, 3, 32)
    assert unpaired.new_runs.p < 0.001


def test_bad_input_is_refused_in_words() -> None:
    with pytest.raises(EvaluationError, match="no problem in common"):
        compare([episode("a", 0, 1.0)], [episode("b", 0, 1.0)], VERDICT)
    with pytest.raises(EvaluationError, match="is nan; it must be a number"):
        compare([episode("a", 0, math.nan)], BASE, VERDICT)
    with pytest.raises(EvaluationError, match="there are no episodes of the first team"):
        compare([], BASE, VERDICT)


@pytest.mark.parametrize(
    ("p", "text"), [(0.0, "p < 1e-6"), (1e-5, "p = 1e-05"), (0.034, "p = 0.034"), (0.66, "p = 0.66")]
)
def test_p_text(p: float, text: str) -> None:
    assert p_text(p) == text


def test_summary_of_a_whole_test() -> None:
    evaluate = EvaluateSettings(
        metric="tests_passed",
        validation=SampleSettings(samples=4),
        test=HeldOutSettings(samples=4),
        pass_k=(1, 2),
        guards=(),
    )
    selected, last = trained(0.4), trained(0.35)
    baselines = {"single-agent GRPO": {0: team(MEANS + 0.2, 4, 9, families=32)}}
    validation = {
        s: [episode(r.problem.replace("p", "v"), r.sample, r.reward, r.family) for r in records]
        for s, records in trained(0.45).items()
    }
    found = summarise_test(
        selected, BASE, last, baselines, dict.fromkeys(range(3), 10), dict.fromkeys(range(3), 20), evaluate, VERDICT,
        validation,
    )  # fmt: skip
    assert found["verdict"] == "IMPROVED"
    assert len(found["lines"]) == 3 and found["lines"][0].startswith(
        "Against the base: IMPROVED. Hidden tests passed: "
    )
    assert list(found["comparisons"]) == ["base", "last", "single-agent GRPO"]
    assert found["comparisons"]["base"]["family_size"] == 3
    assert found["design"]["comparisons"] == ["base", "last", "single-agent GRPO"]
    left_out = summarise_test(
        selected, BASE, last, baselines, dict.fromkeys(range(3), 10), dict.fromkeys(range(3), 20), evaluate, VERDICT,
        None, {"single-agent GRPO": "it cannot read"},
    )  # fmt: skip
    assert left_out["comparisons"]["base"]["family_size"] == 2
    assert left_out["design"]["outside"] == {"single-agent GRPO": "it cannot read"}, "the rule is part of the plan"
    assert found["shrinkage"]["validation"] > found["shrinkage"]["test"]
    assert found["price_of_the_default"].startswith("Taking the last checkpoint instead would change the result by -")
    assert found["other_runs"].startswith("The same can be expected of other training runs")
    assert found["teams"]["selected"]["metrics"]["tests_passed"] > found["teams"]["base"]["metrics"]["tests_passed"]
    assert "accuracy@2" in found["teams"]["base"]["metrics"] and "accuracy@99" not in found["teams"]["base"]["metrics"]
    assert found["teams"]["selected"]["iqm"] > found["teams"]["base"]["iqm"]
    assert found["problems"]["p000"].keys() == {"selected", "base", "last", "single-agent GRPO"}
    json.dumps(found, allow_nan=False)

    same = summarise_test(selected, BASE, selected, {}, {0: 10}, {0: 10}, evaluate, VERDICT)
    assert same["comparisons"]["base"]["family_size"] == 1  # a team is not compared with itself
    kept = summarise_test(selected, BASE, last, {}, {0: 10}, {0: 20}, evaluate, VERDICT, outside={"last": "if same"})
    assert kept["comparisons"]["base"]["family_size"] == 2
    assert same["comparisons"]["last"]["verdict"] == "EQUIVALENT"
    assert "the default costs nothing" in same["comparisons"]["last"]["sentence"]
    assert "the default costs nothing" in same["price_of_the_default"]
    assert same["plan"] == {"followed": False, "deviations": ["there was no plan"], "changed": [], "plan": ""}

    with pytest.raises(EvaluationError, match="in both validation and test"):
        summarise_test(selected, BASE, last, {}, {}, {}, evaluate, VERDICT, validation=selected)
    with pytest.raises(EvaluationError, match="no test episodes of a selected checkpoint"):
        summarise_test({}, BASE, {}, {}, {}, {}, evaluate, VERDICT)


def test_the_last_turn_is_compared_with_the_first_of_the_same_episodes() -> None:
    evaluate = EvaluateSettings(metric="tests_passed", pass_k=(1,), guards=())
    selected = {
        seed: [
            dataclasses.replace(
                record,
                turns=2,
                attempts=[
                    {"reward": 0.0, **record.metrics, "tests_passed": record.metrics["tests_passed"] - 0.1},
                    {"reward": record.reward, **record.metrics},
                ],
            )
            if record.sample % 2
            else record
            for record in records
        ]
        for seed, records in trained(0.4).items()
    }
    steps = dict.fromkeys(range(3), 10), dict.fromkeys(range(3), 20)
    without = summarise_test(selected, BASE, trained(0.35), {}, *steps, evaluate, VERDICT)
    found = summarise_test(selected, BASE, trained(0.35), {}, *steps, evaluate, VERDICT, has_attempts=True)
    own = found["comparisons"]["first turn"]
    assert own["difference"]["estimate"] == pytest.approx(0.05), "half of the episodes had a second turn"
    assert own["sentence"].startswith(own["verdict"]) and "for its own first turn" in own["sentence"]
    assert found["design"]["comparisons"] == ["base", "last", "first turn"] == list(found["comparisons"])
    assert own["family_size"] == 3 == found["comparisons"]["base"]["family_size"]
    assert "first turn" not in found["teams"] and "first turn" not in without["comparisons"]


def test_a_waiting_team_is_called_degenerate_not_improved() -> None:
    idle = {s: constant_team([1.0] * 96, 4, varied_tokens=False) for s in range(3)}
    base = [EpisodeRecord(**{**r.to_json(), "family": r.problem}) for r in BASE]
    found = summarise_test(idle, base, idle, {}, {0: 1}, {0: 2}, EvaluateSettings(metric="tests_passed"), VERDICT)
    assert found["verdict"] == "INCONCLUSIVE"
    assert "same in every recorded respect" in found["comparisons"]["base"]["sentence"]
    assert found["lines"][2] == "Caveats: 3 failed guards, 1 doubt about the statistics." and "same in every" in str(
        found["caveats"]
    )


def test_the_order_of_episodes_and_seeds_changes_nothing() -> None:
    a = trained(0.06)
    rng = np.random.default_rng(0)
    shuffled = {seed: [a[seed][i] for i in rng.permutation(len(a[seed]))] for seed in reversed(list(a))}
    base = [BASE[i] for i in rng.permutation(len(BASE))]
    assert compare(shuffled, base, VERDICT).to_json() == compare(a, BASE, VERDICT).to_json()
