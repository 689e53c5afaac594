import dataclasses
import re

import numpy as np
import pytest

from pipeline_lib.evaluation.results import to_json
from pipeline_lib.evaluation.sentences import (
    Caveat,
    against_base,
    against_single_agent,
    counted,
    in_line,
    of_comparisons,
)
from pipeline_lib.settings.evaluate import VerdictSettings
from tests.evaluation.build import compare, constant_team, team

VERDICT = VerdictSettings(resamples=200)
MEANS = np.random.default_rng(0).random(96) * 0.4
NAMES = ("the selected team", "the trained single agent")


def runs(gain: float, seeds: int) -> dict[int, list]:
    noise = np.random.default_rng(7).standard_normal((seeds, MEANS.size))
    return {seed: team(MEANS + gain + 0.05 * noise[seed], 4, 50 + seed) for seed in range(seeds)}


BASE = team(MEANS, 4, 1)


def test_the_line_against_the_base_has_verdict_both_means_difference_interval_and_runs() -> None:
    line = against_base(compare(runs(0.4, 3), BASE, VERDICT, names=("the selected team", "the base")))
    number = r"[+-]?\d+\.\d"
    assert re.fullmatch(
        rf"Against the base: IMPROVED\. Hidden tests passed: {number} % against {number} %, {number} points "
        rf"\(95 % interval {number} to {number} points\), in 3 of 3 training runs\.",
        line,
    ), line
    assert "from one training run" in against_base(compare(runs(0.4, 1), BASE, VERDICT))
    failed = compare(runs(0.4, 3), BASE, VERDICT, faults=("programs that parse is 10 %",))
    assert "INCONCLUSIVE" in against_base(failed) and "a guard fails" in against_base(failed)
    assert to_json(of_comparisons([failed]))[0] == {
        "what": "1 failed guard",
        "details": ["Programs that parse is 10 %."],
    }


@pytest.mark.parametrize(
    ("gain", "own", "single", "verdict", "words"),
    [
        (0.4, 3, 1, "IMPROVED, working together pays", "it was trained once, the team 3 times: one run is not enough"),
        (0.4, 3, 2, "IMPROVED, working together pays", "it was trained twice, the team 3 times."),
        (0.4, 3, 3, "IMPROVED, working together pays", "(3 training runs each)"),
        (0.4, 1, 1, "IMPROVED, working together pays", "each was trained once: one run is not enough"),
        (0.02, 3, 1, "EQUIVALENT, working together gains nothing that matters", "one run is not enough"),
        (-0.3, 3, 3, "WORSE, working together costs more than it gains", "(3 training runs each)"),
        (0.05, 3, 3, "INCONCLUSIVE, it is open whether working together pays", "(3 training runs each)"),
    ],
)  # fmt: skip
def test_the_line_against_the_single_agent_answers_whether_working_together_pays(
    gain: float, own: int, single: int, verdict: str, words: str
) -> None:
    few = VERDICT if abs(gain) != 0.05 else VERDICT.model_copy(update={"margin": 0.04})
    rivals = {seed + 10: records for seed, records in runs(0.0, single).items()}
    if gain == 0.05:  # a dozen problems cannot tell
        rivals = {seed: [r for r in records if r.problem < "p006"] for seed, records in rivals.items()}
    line = against_single_agent(compare(runs(gain, own), rivals, few, names=NAMES))
    assert line.startswith(f"Against the trained single agent: {verdict}. ")
    assert words in line and len(line) < 240


def test_without_a_single_agent_the_question_is_said_to_be_open() -> None:
    assert against_single_agent(None).startswith("Against a single agent: none was trained")


def test_a_comparison_without_test_has_no_interval_and_its_reason_is_a_caveat() -> None:
    found = compare(constant_team([1.0] * 3), constant_team([0.0] * 3), VERDICT)
    assert "INCONCLUSIVE" in against_base(found) and "%  interval" not in against_base(found)
    (caveat,) = of_comparisons([found, None])
    assert caveat.what == "1 doubt about the statistics" and "no variation" in caveat.details[0]
    doubtful = dataclasses.replace(found, notes=("2 episodes were lost",))
    assert [c.what for c in of_comparisons([doubtful, doubtful])] == [
        "1 note on episodes left out", "2 doubts about the statistics",
    ]  # fmt: skip


def test_the_line_of_caveats_stays_short_however_many_there_are() -> None:
    many = counted((f"the plan was changed after look {i}: {'x' * 400}" for i in range(30)), "change", "changes")
    assert in_line(to_json(many)) == "Caveats: 30 changes."
    assert in_line([]) == "Caveats: none." and counted([], "change", "changes") == []
    assert counted(["a fault."], "fault", "faults") == [Caveat("1 fault", ("A fault.",))]
