"""What each turn adds: gains over problems, repairs and what was broken, worked out by hand."""

from dataclasses import dataclass
from typing import Any

import pytest

from pipeline_lib.environment_api.metrics import Metric
from pipeline_lib.evaluation.episodes import EpisodeRecord, value_of
from pipeline_lib.evaluation.run import record_of
from pipeline_lib.evaluation.tested_teams import first_turns, turn_gains
from pipeline_lib.play.experience import Decision
from pipeline_lib.play.fixing import FixedActions
from tasks.use.episode import Played, PlayedTurn
from tests.training.conftest import Agree

METRICS = {"passed": Metric("tests", share=True), "solved": Metric("solved", share=True, solves=True)}


def episode(problem: str, *turns: float) -> EpisodeRecord:
    """An episode whose turns pass these shares of the tests; its reward is twice that."""
    attempts = [{"reward": 2 * share, "passed": share, "solved": float(share == 1)} for share in turns]
    return EpisodeRecord(
        problem, problem, 0, 1.0, len(turns), {}, attempts[-1], 5, attempts=attempts if len(turns) > 1 else ()
    )


EPISODES = [
    episode("a", 0.0, 1.0),  # repaired
    episode("a", 1.0, 0.5),  # broken
    episode("a", 1.0),  # ended early: has no second turn
    episode("b", 0.5, 0.5, 1.0),
    episode("c", 1.0, 1.0),
]


def test_a_turn_is_compared_with_the_one_before_in_the_same_episodes() -> None:
    second, third = turn_gains(EPISODES, "passed", METRICS, 0.95)
    assert (second.turn, second.episodes, third.turn, third.episodes) == (2, 4, 3, 1)
    assert second.before == pytest.approx((0 + 1 + 0.5 + 1) / 4)
    assert second.gain.value == pytest.approx(((1 - 0.5) / 2 + 0 + 0) / 3), "a mean over problems"
    assert second.reward == pytest.approx(2 * (1 - 0.5 + 0 + 0) / 4)
    assert second.gain.low is not None and second.gain.low < second.gain.value
    assert (second.repaired, second.broken) == (pytest.approx(1 / 2), pytest.approx(1 / 2))
    assert (third.repaired, third.broken) == (1.0, None), "nothing was right before the third turn"


def test_without_several_turns_or_a_metric_of_success_there_is_nothing_to_say() -> None:
    assert turn_gains([episode("a", 1.0)], "passed", METRICS, 0.95) == ()
    (found,) = turn_gains(EPISODES[:2], "reward", {"passed": METRICS["passed"]}, 0.95)
    assert (found.repaired, found.broken) == (None, None)


def test_a_record_keeps_its_attempts_and_leaves_out_none() -> None:
    assert EpisodeRecord.from_json(EPISODES[0].to_json()) == EPISODES[0]
    assert "attempts" not in EPISODES[2].to_json() and "shown" not in EPISODES[2].to_json()


def test_the_first_turn_of_an_episode_is_an_episode_of_one_turn() -> None:
    repaired, _, early, *_ = first_turns(EPISODES)
    assert (repaired.reward, repaired.metrics, repaired.turns) == (0.0, {"passed": 0.0, "solved": 0.0}, 1)
    assert repaired.attempts == () and repaired.problem == "a"
    assert early == EPISODES[2], "it had no further turn"


@dataclass(frozen=True)
class Task:
    id: str = "a"
    family: str = "a"


def decision(turn: int, reward: float | None) -> Decision:
    terms = {} if reward is None else {"tests": reward - 0.1, "form": 0.1}
    metrics = {} if reward is None else {"passed": reward / 2}
    found: dict[str, Any] = {"reward": reward, "terms": terms, "metrics": metrics, "last": False}
    return Decision("a", turn, 0, None if turn == 0 else turn - 1, 1.0, (), (), (), **found)


@pytest.mark.parametrize("rewards", [(1.4, 2.0), (2.0, 0.4, 1.0), (1.0,)])
def test_the_last_attempt_is_what_an_episode_earns(rewards: tuple[float, ...]) -> None:
    """Their sum would call a team better than its own first turn whose last one is worse."""
    decisions = [decision(turn, reward) for turn, reward in enumerate(rewards)]
    tried, steps = (record_of(Task(), 0, decisions, retries) for retries in (True, False))
    assert value_of(tried, "reward") == rewards[-1] == pytest.approx(sum(tried.terms.values()))
    assert value_of(steps, "reward") == pytest.approx(sum(rewards)) == pytest.approx(sum(steps.terms.values()))
    (first,) = first_turns([tried])
    assert value_of(first, "reward") == rewards[0] and first.metrics == {"passed": rewards[0] / 2}
    played = Played("team", "a", [PlayedTurn(reward=reward) for reward in rewards], attempts=True)
    assert played.reward == rewards[-1] and Played("team", "a", played.turns).reward == pytest.approx(sum(rewards))
    lost = [*decisions, decision(len(rewards), None)]
    assert record_of(Task(), 0, lost, True).reward is None and record_of(Task(), 0, lost, True).attempts == ()


def test_attempts_earn_what_one_turn_can_earn() -> None:
    environment = Agree(turns=3)
    assert environment.episode_bounds == (0.0, 3.0)
    environment.retries = True
    assert environment.episode_bounds == FixedActions(environment).episode_bounds == (0.0, 1.0)
