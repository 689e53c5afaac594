"""Shapley values and removal, against closed forms and an independent definition; and subteams that really play."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from pipeline_lib.environment_api.metrics import Metric
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.run import evaluate_subteams, evaluate_team, subsets
from pipeline_lib.evaluation.tested_teams import contributions, shapley, subteam_means
from pipeline_lib.play import Player
from pipeline_lib.play.fixing import Fixed, FixedActions
from pipeline_lib.rollouts.transformers_engine import TransformersEngine
from tests.evaluation.build import episode
from tests.training.conftest import SAMPLING, TOYS, Agree, make_team

INFO = Metric("tests passed", share=True)
Values = Mapping[frozenset[str], float]


def over_orders(agents: Sequence[str], values: Values) -> dict[str, float]:
    """The definition by orders of joining, not by subteams."""
    found = dict.fromkeys(agents, 0.0)
    orders = list(itertools.permutations(agents))
    for order in orders:
        for place, agent in enumerate(order):
            found[agent] += (values[frozenset(order[: place + 1])] - values[frozenset(order[:place])]) / len(orders)
    return found


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_shapley_values_are_means_over_orders_and_add_up(count: int) -> None:
    agents = ["a", "b", "c", "d"][:count]
    rng = np.random.default_rng(count)
    values = {frozenset(agents[i] for i in present): float(rng.normal()) for present in subsets(count)}
    found = shapley(agents, values)
    assert found == pytest.approx(over_orders(agents, values))
    assert sum(found.values()) == pytest.approx(values[frozenset(agents)] - values[frozenset()])


def test_two_that_need_each_other_share_and_a_spectator_gets_nothing() -> None:
    agents = ["left", "right", "spectator"]
    values = {frozenset(agents[i] for i in present): float({0, 1} <= set(present)) for present in subsets(len(agents))}
    assert shapley(agents, values) == pytest.approx({"left": 0.5, "right": 0.5, "spectator": 0.0})


def played(problem: str, sample: int, values: Values, agents: Sequence[str], family: str = "") -> list[EpisodeRecord]:
    return [
        dataclasses.replace(
            episode(problem, sample, value, family), details={"agents": list(agents), "present": sorted(present)}
        )
        for present, value in values.items()
    ]


def test_contributions_are_means_over_episodes_then_problems_with_clustered_intervals() -> None:
    agents = ("a", "b")
    gains = {"p": (0.2, 0.6), "q": (0.4, 0.0), "r": (0.9, 0.1)}
    rows = []
    for problem, (a, b) in gains.items():
        for sample, more in enumerate((0.0, 0.1)):
            values = {frozenset(): 0.0, frozenset("a"): a + more, frozenset("b"): b, frozenset("ab"): a + b + more}
            rows += played(problem, sample, values, agents)
    found = {one.agent: one for one in contributions([rows], "tests_passed", INFO, 0.95)}
    assert found["a"].problems == 3
    for one in found.values():
        assert one.shapley is not None
        expected = np.array([gains[p][one.agent == "b"] + 0.05 * (one.agent == "a") for p in gains])
        # Additive: what an agent adds does not depend on who is there, so both numbers are the gain itself.
        assert (one.shapley.value, one.removal.value) == pytest.approx((expected.mean(),) * 2)
        low, high = one.shapley.low, one.shapley.high
        assert low is not None and high is not None and low < expected.mean() < high
    assert subteam_means([rows], "tests_passed")[("a",)] == pytest.approx(0.55)
    lost = dataclasses.replace(rows[0], reward=None, metrics={})
    fewer = {one.agent: one for one in contributions([[lost, *rows[1:]]], "tests_passed", INFO, 0.95)}
    # The first episode of p is left out as a whole: a subteam without a partner tells nothing.
    assert fewer["a"].removal.value == pytest.approx(np.mean([0.3, 0.45, 0.95]))


class Recording(Agree):
    """Remembers what was executed together, and how often it was asked."""

    def __init__(self, agents: Sequence[str], turns: int) -> None:
        super().__init__(agents, turns)
        self.executed: list[list[tuple[str, ...]]] = []

    def stub(self, state: object, agent: int) -> str:
        return f"stub {agent}"

    def step(self, states, joint_actions):  # type: ignore[no-untyped-def]
        self.executed.append([tuple(texts) for texts in joint_actions])
        return super().step(states, joint_actions)


class Counting(TransformersEngine):
    """Counts the actions that were sampled."""

    sampled = 0

    def generate(self, requests, sampling):  # type: ignore[no-untyped-def]
        self.sampled += sum(request.n for request in requests)
        return super().generate(requests, sampling)


@pytest.mark.parametrize("retries", [False, True])
def test_every_subteam_is_executed_in_one_batch_per_turn_and_nothing_is_sampled_twice(retries: bool) -> None:
    names = ("one", "two", "three")
    environment, team, engine = Recording(names, turns=2), make_team(names), Counting(rows=64)
    environment.retries = retries
    engine.load(team.policies)
    player = Player(environment, team, engine, SAMPLING)
    whole = evaluate_team(player, [_Problem(toy.id, toy.text) for toy in TOYS], 2, 7)
    usual, engine.sampled, environment.executed = engine.sampled, 0, []
    records = evaluate_subteams(player, [_Problem(toy.id, toy.text) for toy in TOYS], 2, 7)
    assert [len(batch) for batch in environment.executed] == [3 * 2 * 8] * 2
    assert engine.sampled == usual, "agents of this environment observe nothing of each other: no new question is asked"
    full = [record for record in records if len(record.details["present"]) == 3]
    assert [(r.problem, r.sample, r.reward) for r in full] == [(r.problem, r.sample, r.reward) for r in whole]
    first = environment.executed[0][:8]
    assert first[-1] == ("stub 0", "stub 1", "stub 2")
    assert first[1] == (*first[0][:2], "stub 2"), "who is present acts as in the whole team"
    found = contributions([records], "reward", Metric("reward"), 0.95)
    means = subteam_means([records], "reward")
    total = sum(one.shapley.value for one in found if one.shapley and one.shapley.value is not None)
    assert total == pytest.approx(means[names] - means[()])


def test_a_large_team_is_played_whole_and_without_each_agent() -> None:
    assert subsets(5) == [(0, 1, 2, 3, 4), (0, 1, 2, 3), (0, 1, 2, 4), (0, 1, 3, 4), (0, 2, 3, 4), (1, 2, 3, 4)]
    agents = "abcde"
    values = {frozenset(agents[i] for i in present): 0.1 * len(present) for present in subsets(5)}
    found = contributions([played("p", 0, values, agents) + played("q", 0, values, agents)], "reward", INFO, 0.95)
    assert [(one.shapley, one.removal.value) for one in found] == [(None, pytest.approx(0.1))] * 5


def test_a_given_first_action_is_executed_once_and_the_agent_acts_again_afterwards() -> None:
    environment = FixedActions(Recording(("one", "two"), turns=2))
    state = environment.start(Fixed(TOYS[0], given={1: "7"}))
    assert environment.acting(state) == [0]
    [outcome] = environment.step([state], [["6", ""]])
    assert environment.inner.executed == [[("6", "7")]]  # type: ignore[attr-defined]
    assert environment.acting(outcome.state) == [0, 1]


@dataclasses.dataclass(frozen=True)
class _Problem:
    id: str
    text: str

    @property
    def family(self) -> str:
        return self.id
