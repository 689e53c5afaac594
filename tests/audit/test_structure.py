"""The audit warns where one agent does as well as the untrained team, and only there."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from pipeline_lib.assembly.auditing import agent_alone
from pipeline_lib.audit.result import Check, Status
from pipeline_lib.audit.run import OneAgent, Played, cooperative_structure
from pipeline_lib.play import Player
from pipeline_lib.rollouts.engine import Action, Request
from tests.play.engines import Scripted
from tests.training.conftest import SAMPLING, TOYS, Agree, make_team


def played(level: float, seed: int, problems: int = 32) -> Played:
    hardness = np.random.default_rng(99).normal(0, 0.2, (problems, 1))
    done = np.clip(level + hardness + np.random.default_rng(seed).normal(0, 0.1, (problems, 8)), 0, 1)
    return Played(done, {"done": done})


def check(team: float, alone: float, single: float, divided: bool, problems: int = 32) -> Check:
    one = OneAgent(
        {"weak": played(-9, 3, problems), "strong": played(alone, 2, problems)}, played(single, 4, problems), divided
    )
    found = cooperative_structure(played(team, 1, problems), one, "done", "what is wanted")
    assert found is not None and bool(found.mend) == (found.status is Status.WARN)
    return found


@pytest.mark.parametrize(("alone", "expected"), [(0.8, Status.WARN), (0.5, Status.WARN), (0.3, Status.PASS)])
@pytest.mark.parametrize("divided", [True, False])
def test_an_agent_of_the_team_that_does_as_well_alone_is_a_warning(
    alone: float, expected: Status, divided: bool
) -> None:
    found = check(0.5, alone, 0.1, divided)
    assert found.status is expected
    assert "strong, the best of its agents alone" in found.sentence
    assert ("So an agent alone does as well" in found.sentence) == (expected is Status.WARN)


def test_a_single_agent_is_judged_only_if_it_is_told_no_more_than_an_agent_of_the_team() -> None:
    fair, unfair = check(0.5, 0.1, 0.8, divided=False), check(0.5, 0.1, 0.8, divided=True)
    assert fair.status is Status.WARN and "So the single agent does as well" in fair.sentence
    assert unfair.status is Status.PASS and "The single agent is not judged" in unfair.sentence
    assert fair.numbers["single"] == unfair.numbers["single"]
    assert check(0.5, 0.1, 0.2, divided=False).status is Status.PASS


def test_the_interval_is_the_paired_t_interval_over_problems() -> None:
    found = check(0.5, 0.45, 0.1, divided=True)
    team, one = (played(level, seed).metrics["done"].mean(axis=1) for level, seed in ((0.5, 1), (0.45, 2)))
    low, high = stats.ttest_rel(one, team).confidence_interval()
    numbers = found.numbers["alone_strong"]
    assert (numbers["low"], numbers["high"]) == (pytest.approx(low), pytest.approx(high))
    assert f"{numbers['difference']:+.2f} [{low:+.2f}, {high:+.2f}]" in found.sentence
    assert "32 problems" in found.sentence


def test_few_problems_show_nothing_and_one_is_not_judged() -> None:
    few = check(0.5, 0.45, 0.45, divided=False, problems=3)
    assert few.status is Status.PASS and "not shown" in few.sentence
    nothing = check(-9, -9, 0.8, divided=True)
    assert nothing.status is Status.PASS and "too little to be compared" in nothing.sentence
    one = OneAgent({"a": played(0.5, 1, 1)}, played(0.5, 2, 1), divided=False)
    assert cooperative_structure(played(0.5, 1, 1), one, "done", "what is wanted") is None
    assert cooperative_structure(played(0.5, 1), dataclasses.replace(one, divided=True), "other", "it") is None


def test_lost_episodes_are_left_out_and_lost_problems_on_both_sides() -> None:
    team = played(0.5, 1)
    one = played(0.3, 2)
    one.metrics["done"][0, :] = np.nan
    team.metrics["done"][1, :5] = np.nan
    found = cooperative_structure(team, OneAgent({"a": one}, played(0.3, 4), True), "done", "what is wanted")
    assert found is not None and found.numbers["problems"] == 31
    assert found.numbers["team"] == pytest.approx(np.nanmean(team.metrics["done"], axis=1)[1:].mean())


class Same(Scripted):
    """Every agent always says the same digit."""

    def actions(self, request: Request) -> list[Action]:
        return [Action((3,), (0.0,), "3", "stop")] * request.n


class Stubbed(Agree):
    """Nobody is needed but the agent ``main``: stubs of the others are right."""

    def stub(self, state: object, agent: int) -> str:
        return "4" if self.names[agent] == "main" else "3"


def test_an_agent_alone_acts_beside_the_stubs_of_all_others() -> None:
    names = ("helper", "spectator", "main")
    player = Player(Stubbed(names), make_team(names), Same(), SAMPLING)
    found = {name: agent_alone(player, number, TOYS, 2, 0) for number, name in enumerate(names)}
    assert {agent: played.metrics["solved"].tolist() for agent, played in found.items()} == {
        "helper": [[0.0, 0.0]] * 3,
        "spectator": [[0.0, 0.0]] * 3,
        "main": [[1.0, 1.0]] * 3,
    }
