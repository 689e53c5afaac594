"""The audit of rewards for agreed plans: the shipped one passes, plausible wrong ones are refused."""

import functools

import pytest

from pipeline_lib.audit.result import AuditResult, Status
from pipeline_lib.audit.run import audit
from pipeline_lib.environment_kit.dialogue import WholeEpisodes
from pipeline_lib.environments.planning.audit import PlanningExaminer
from pipeline_lib.environments.planning.runtime import PlanningEnvironment
from pipeline_lib.environments.planning.settings import PlanningReward, PlanningSettings, SoundPlanningReward
from pipeline_lib.settings.environment import CustomReward
from tests.environments.planning.help import ALL, appointments, constraints, share_of

#: The greatest reward of an episode that does the task: the right plan, said by both in the first turn.
MOST = 1.245


def audited(reward: PlanningReward, team: str = "team", options: int = 3, budgets: bool = True) -> AuditResult:
    settings = PlanningSettings(reward=reward, team=team)
    return audit(settings, PlanningEnvironment(settings), appointments(options, budgets)["test"])


@pytest.mark.parametrize("budgets", [True, False])
@pytest.mark.parametrize(("team", "options"), [("team", 3), ("team", 4), ("single", 3)])
def test_the_sound_reward_passes(team: str, options: int, budgets: bool) -> None:
    found = audited(SoundPlanningReward(), team, options, budgets)
    assert found.status is Status.PASS, found.summary
    wrong = [rung for rung in found.ladder if rung.role == "degenerate"]
    working = [rung for rung in found.ladder if rung.role == "working"]
    assert len(wrong) >= (16 if team == "team" else 10)
    assert max(rung.reward for rung in wrong) < 0.5 * MOST < 0.9 * MOST < min(rung.reward for rung in working)
    assert all(rung.outcome == 1.0 for rung in working)


@functools.cache
def rewards() -> dict[str, float]:
    return {rung.name: rung.reward for rung in audited(SoundPlanningReward()).ladder}


def test_teams_earn_in_the_order_of_what_they_are_worth() -> None:
    found = rewards()
    assert found["one_tells"] > found["both_tell"] > found["everything_told"] > found["dictator"]
    assert found["dictator"] > found["the_commonest_plan"] > found["guesses"] > found["two_plans"]
    assert found["silent"] > max(found["refusal"], found["copied_text"], found["told_and_not_agreed"])
    assert max(found["silent"], found["agreement_to_nothing"], found["only_one_agrees"], found["all_plans"]) < 0.0


def test_base_rates_are_those_of_all_plans_counted_in_plain_python() -> None:
    problems = appointments()["test"]
    [numbers] = [check.numbers for check in audited(SoundPlanningReward()).checks if check.name == "base_rates"]
    exact = {plan: sum(share_of(problem, plan) == 1.0 for problem in problems) for plan in ALL}
    assert numbers["blind"] == max(exact.values()) / len(problems)
    own, met = [], []
    for problem in problems:
        allowed = constraints(problem)
        for half in (allowed[:3], allowed[3:]):
            plans = set.intersection(*half)
            own.append(1 / len(plans))
            met.append(sum(share_of(problem, plan) for plan in plans) / len(plans))
    assert numbers["own"] == pytest.approx(sum(own) / len(own)) and 0.1 < numbers["own"] < 0.3
    assert numbers["own_constraints"] == pytest.approx(sum(met) / len(met))


WRONG = ("AnyAgreement", "AnyStatement", "ShareOnly", "Talkative", "TalkThenAgree", "Disagreement", "Quick", "Silence")


@pytest.mark.parametrize("name", [*WRONG, "Dear"])
def test_plausible_wrong_rewards_are_refused(own_rewards: None, name: str) -> None:
    found = audited(CustomReward(path=f"planning_rewards:{name}"))
    assert found.status is Status.FAIL, f"{name}: {found.summary}"


@pytest.mark.parametrize(("name", "options"), [("Satisfied", {"token": 0.002}), ("Fines", {})])
def test_a_sound_reward_of_ones_own_is_accepted(own_rewards: None, name: str, options: dict[str, float]) -> None:
    found = audited(CustomReward(path=f"planning_rewards:{name}", options=options))
    assert found.status is not Status.FAIL, found.summary


def test_scripted_teams_are_what_their_names_say() -> None:
    played, (problem, other) = WholeEpisodes(PlanningEnvironment(PlanningSettings())), appointments()["test"][:2]
    examiner = PlanningExaminer()
    examiner.examine(played.played, [problem, other], 0, lambda *_: None)
    ends = {
        name: played.step([played.start(problem)], [texts])[0]
        for name, (_, texts) in examiner.teams(played, problem, other).items()
    }
    agreed = {name for name, end in ends.items() if end.metrics["agreed"]}
    assert {"dictator", "the_commonest_plan", "the_same_guess", "one_tells", "late", "lucky"} <= agreed
    assert not agreed & {"silent", "guesses", "two_plans", "all_plans", "refusal", "only_one_agrees", "copied_text"}
    assert all(problem.satisfied(0, ends["dictator"].state.plan)) and ends["late"].metrics["turns_used"] == 6
    assert {name for name, end in ends.items() if end.metrics["satisfied"]} >= {"one_tells", "both_tell", "late"}
    assert ends["copied_text"].metrics["useless_talk"] > 0.5
