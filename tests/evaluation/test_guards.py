import dataclasses

import pytest
from pydantic import ValidationError

from pipeline_lib.evaluation.episodes import check_guards, identical_share
from pipeline_lib.settings.evaluate import EvaluateSettings, Guard, HeldOutSettings, VerdictSettings
from tests.evaluation.build import GUARDS, METRICS, compare, constant_team, episode, team

SETTINGS = EvaluateSettings(metric="tests_passed", guards=GUARDS)


def test_a_team_that_does_nothing_fails_the_activity_guard() -> None:
    waiting = team([1.0] * 20, 2, 0, metrics={"meals_share": 0.0, "deadlock": 0.0, "invalid_share": 0.0})
    base = team([0.3] * 20, 2, 1, metrics={"meals_share": 0.4, "deadlock": 0.2, "invalid_share": 0.0})
    found = check_guards(waiting, base, SETTINGS, METRICS)
    assert not found.passed
    assert "meals, of the most possible is 0.0 %; it must be at least 1.0 %" in found.failures[0]
    assert check_guards(base, base, SETTINGS, METRICS).passed


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ({"syntax": 0.8}, "programs that parse is 80.0 %, worse than the base's 95.0 %"),
        (
            {"invalid_share": 0.3, "syntax": 0.95},
            "decisions that cannot be read is 30.0 %, worse than the base's 10.0 %",
        ),
        ({"deadlock": 0.5, "syntax": 0.95}, "episodes in deadlock is 50.0 %"),
    ],
)
def test_format_and_behaviour_are_compared_with_the_base(metrics: dict[str, float], words: str) -> None:
    base = team([0.5] * 9, 2, 0, metrics={"syntax": 0.95, "invalid_share": 0.1, "deadlock": 0.2})
    found = check_guards(team([0.9] * 9, 2, 1, metrics=metrics), base, SETTINGS, METRICS)
    assert len(found.failures) == 1
    assert words in found.failures[0]


def test_unmeasured_metrics_are_said() -> None:
    found = check_guards(team([0.5] * 9, 2, 0), [], SETTINGS, METRICS)
    assert found.passed
    assert set(found.not_measured) == {"syntax", "meals_share", "invalid_share", "deadlock"}


def test_identical_episodes() -> None:
    same = constant_team([1.0] * 10, varied_tokens=False)
    assert identical_share(same) == 1.0
    assert (
        "100 % of its episodes are the same in every recorded respect"
        in check_guards(same, [], SETTINGS, METRICS).failures[0]
    )
    assert identical_share(constant_team([1.0] * 10)) < 0.5
    assert identical_share([episode("only", k, 1.0) for k in range(5)]) == 0.0  # one problem says nothing
    assert identical_share([*same, episode("x", 0, None)]) == 1.0


def test_right_answers_to_different_problems_are_not_the_same_though_they_earn_and_cost_the_same() -> None:
    same = constant_team([1.0] * 10, varied_tokens=False)
    answers = [dataclasses.replace(one, wrote=f"answer to {one.problem}") for one in same]
    assert identical_share(answers) == 0.1
    assert check_guards(answers, [], SETTINGS, METRICS).passed
    assert compare({0: answers}, constant_team([0.0] * 10), VerdictSettings(resamples=200)).verdict == "IMPROVED"
    ignoring = [dataclasses.replace(one, wrote="the same") for one in same]
    assert identical_share(ignoring) == 1.0 and not check_guards(ignoring, [], SETTINGS, METRICS).passed


def test_guards_are_configurable() -> None:
    strict = EvaluateSettings(guards=(Guard(metric="cooperation", limit=0.5),), identical_share=1.0)
    found = check_guards(team([0.5] * 9, 2, 0, metrics={"cooperation": 0.4, "meals_share": 0.0}), [], strict, METRICS)
    assert found.failures == ("episodes with cooperation is 40.0 %; it must be at least 50.0 %",)
    with pytest.raises(ValidationError, match="accepts everything; set limit, slack or both"):
        Guard(metric="meals")
    with pytest.raises(ValidationError, match="k is a number of episodes"):
        EvaluateSettings(pass_k=(0,))
    with pytest.raises(ValidationError, match="pass_k has 8, and the test plays 4 episodes per problem"):
        EvaluateSettings(test=HeldOutSettings(samples=4))
