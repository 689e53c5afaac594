"""What the correction of a family does to promises of power, to single training runs and to guards."""

import dataclasses

import numpy as np
import pytest

from pipeline_lib.evaluation import planning
from pipeline_lib.evaluation.comparison import Comparison, measure
from pipeline_lib.evaluation.evidence import critical
from pipeline_lib.evaluation.planning import detectable, t_power, unbiased
from pipeline_lib.evaluation.results import holm, rejections
from pipeline_lib.evaluation.verdict import decide, identical
from pipeline_lib.settings.evaluate import VerdictSettings
from tests.evaluation.build import METRICS, team

VERDICT = VerdictSettings(resamples=200)
MEANS = np.random.default_rng(0).random(60) * 0.4


def compared(
    gain: float, runs: int = 3, against: int = 0, faults: tuple[str, ...] = (), noise: float = 0.2, problems: int = 60
) -> Comparison:
    means, families = np.resize(MEANS, problems), problems // 2
    selected = {s: team(means + gain, 2, 50 + s, families, noise) for s in range(runs)}
    other = team(means, 2, 1, families, noise)
    others = {s + 9 * (runs != against): other for s in range(against)} if against else other
    return measure(selected, others, VERDICT, "tests_passed", ("the selected team", "the base"), faults, METRICS)


def test_rejections_are_those_of_holm() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        p = list(rng.random(5) ** 4)
        assert rejections(p, 0.05) == sum(q <= 0.05 for q in holm([*p, None]) if q is not None)
    assert rejections([None, 0.001], 0.05) == 1
    assert rejections([], 0.05) == 0


def test_power_is_promised_at_the_level_that_the_family_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    # As if no kind of family could be missing; what those cost: tests/evaluation/test_evidence.py.
    monkeypatch.setattr(planning, "missing", lambda families, alpha: 0.0)
    nothing, clear = compared(0.0), compared(0.5)
    df = nothing.difference.df
    se = unbiased(nothing.difference.se, df)

    def promised(alpha: float) -> float:
        return detectable(se, df, alpha, 0.8, critical(df, nothing.evidence, alpha))

    family = {"this": nothing, **{str(i): compared(0.001 * i) for i in range(5)}}
    found = decide(family)["this"]
    assert found.detectable == pytest.approx(promised(0.05 / 6))
    symmetric = dataclasses.replace(nothing, evidence=dataclasses.replace(nothing.evidence, skewness=0.0))
    found = decide({**family, "this": symmetric})["this"]
    assert t_power(found.detectable / se, df, 0.05 / 6) == pytest.approx(0.8, abs=1e-6)
    assert found.problems_for_margin > decide({"this": nothing})["this"].problems_for_margin
    # Comparisons that are significant anyway take nothing away.
    beside = decide({"this": nothing, **{str(i): clear for i in range(5)}})["this"]
    assert beside.detectable == pytest.approx(promised(0.05))


def test_few_families_need_more_problems_than_many() -> None:
    one = compared(0.03)
    inflated = dataclasses.replace(one, difference=dataclasses.replace(one.difference, df=3.0))
    many, few = (decide({"": c})[""].problems_for_margin for c in (one, inflated))
    assert few > 1.2 * many


def test_single_training_runs_are_corrected_too() -> None:
    found = decide({str(i): compared(0.5) for i in range(6)})["0"]
    p = [run.difference.p for run in found.per_seed]
    assert [run.p_adjusted for run in found.per_seed] == [pytest.approx(min(1, 6 * q)) for q in holm(p)]
    assert "significant in 3 of 3 training runs alone, corrected for their number too." in found.sentence
    weak = dataclasses.replace(
        compared(0.5), per_seed=tuple(dataclasses.replace(r, difference=dataclasses.replace(r.difference, p=0.02))
                                      for r in compared(0.5).per_seed)
    )  # fmt: skip
    assert "significant in 0 of 3 training runs alone" in decide({"": weak})[""].sentence


@pytest.mark.parametrize(("runs", "against", "said"), [(3, 0, True), (3, 3, True), (3, 1, False), (1, 0, False)])
def test_runs_alone_are_not_counted_against_a_baseline_of_one_run(runs: int, against: int, said: bool) -> None:
    found = decide({"": compared(0.5, runs, against)})[""]
    assert found.verdict == "IMPROVED"
    assert ("training runs alone" in found.sentence) is said


@pytest.mark.parametrize(
    ("gain", "noise", "verdict"), [(0.5, 0.2, "INCONCLUSIVE"), (-0.5, 0.2, "WORSE"), (0.0, 0.03, "EQUIVALENT")]
)
def test_a_guard_that_fails_is_told_with_every_verdict(gain: float, noise: float, verdict: str) -> None:
    fault = ("training seed 0: syntax is 35 %, worse than the base's 94 %",)
    found = decide({"": compared(gain, faults=fault, noise=noise, problems=300)})[""]
    assert found.verdict == verdict
    assert found.sentence.endswith(f" But the selected team fails a guard: {fault[0]}.")
    assert identical(found, "The last one.").sentence.endswith(f"{fault[0]}.")


def test_a_comparison_outside_the_family_costs_the_others_nothing_and_gets_no_verdict() -> None:
    clear, other = compared(0.5), compared(0.04)
    alone = decide({"base": other})["base"]
    found = decide({"base": other, "deaf": clear, "silent": clear}, {"deaf": "it cannot read", "silent": "nor this"})
    assert found["base"] == alone
    assert list(found) == ["base", "deaf", "silent"]
    deaf = found["deaf"]
    assert (deaf.verdict, deaf.family_size, deaf.p_adjusted, deaf.detectable) == ("UNTESTED", 0, None, None)
    assert deaf.sentence.startswith("UNTESTED: on 60 held-out problems") and "it cannot read." in deaf.sentence
    assert decide({"base": other}, {"never measured": "why"})["base"] == alone
