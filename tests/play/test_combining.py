"""Combinations of sampled actions: executed in the same call, each once, and never gone on from."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from pipeline_lib.credit.plans import Aligned, Column, Cross, Latin, Pairings, Plan, Removal, Replay
from pipeline_lib.play import Experience, Player, groups, join
from pipeline_lib.play.watching import Watcher
from pipeline_lib.protocols import Decentralised, SequentialPipeline
from pipeline_lib.rollouts.engine import Action, Request
from tests.play.engines import Scripted
from tests.training.conftest import SAMPLING, TOYS, Agree, make_team

SIZE = 3


class Digits(Scripted):
    """Answers the g-th digit of the policy's own row."""

    rows: Mapping[str, str] = {"one": "012", "two": "110", "three": "201"}

    def actions(self, request: Request) -> list[Action]:
        digits = self.rows[request.policy][: request.n]
        return [Action((8 + int(digit), 1), (-1.0, -0.5), digit, "stop") for digit in digits]


class Listens(Agree):
    """Remembers the joint actions of every call."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.heard: list[list[tuple[str, ...]]] = []

    def step(self, states: Any, joint_actions: Any) -> Any:
        self.heard.append([tuple(texts) for texts in joint_actions])
        return super().step(states, joint_actions)


def play(plan: Plan, environment: Agree, overlap: int = 1, problems: int = 1) -> tuple[Experience, Digits]:
    engine = Digits()
    player = Player(
        environment, make_team(environment.names), engine, SAMPLING, Decentralised(), True, plan, overlap=overlap
    )
    return player.play(groups(TOYS[:problems], SIZE, 0, 1)), engine


def test_all_combinations_go_to_the_environment_in_the_one_call_and_equal_ones_once() -> None:
    environment = Listens()
    experience, _ = play(Cross(), environment)
    [heard] = environment.heard
    assert heard[:SIZE] == [("0", "1"), ("1", "1"), ("2", "0")]  # as sampled, in order
    assert sorted(heard) == sorted({(a, b) for a in "012" for b in "110"}), "nine cells, of which six differ"
    assert (experience.executed, experience.lost) == (6, 0)
    [cells] = experience.cells
    for chosen, reward in zip(cells.chosen, cells.rewards, strict=True):
        texts = [Digits.rows[name][g] for name, g in zip(environment.names, chosen, strict=True)]
        assert reward == environment.reward(TOYS[0], texts)
    assert [d.reward for d in experience.decisions] == [environment.reward(TOYS[0], texts) for texts in heard[:SIZE]]


def test_what_is_sampled_does_not_depend_on_the_plan() -> None:
    asked = []
    for plan in (Aligned(), Cross(), Latin(), Column(), Pairings(2)):
        experience, engine = play(plan, Agree(("one", "two", "three"), turns=2), problems=2)
        asked.append((engine.calls, [d.actions for d in experience.decisions]))
        assert len(experience.decisions) == 2 * (SIZE + SIZE**2)
        assert all(d.parent is None or d.parent < 2 * SIZE for d in experience.decisions)
        assert len(experience.cells) == (0 if plan == Aligned() else 2 * (1 + SIZE))
    assert asked[1:] == asked[:1] * 4


def test_parts_of_a_turn_and_of_several_processes_give_the_same_cells() -> None:
    whole, _ = play(Cross(), Agree(turns=2), problems=3)
    parts, _ = play(Cross(), Agree(turns=2), overlap=3, problems=3)
    assert whole.executed == parts.executed
    for one, other in zip(whole.cells, parts.cells, strict=True):
        assert one.first == other.first
        assert np.array_equal(one.rewards, other.rewards) and np.array_equal(one.chosen, other.chosen)
    both = join([whole, parts])
    assert both.executed == 2 * whole.executed
    for cells in both.cells:
        members = both.decisions[cells.first : cells.first + cells.size]
        assert len({d.group for d in members}) == 1
        for chosen, reward in zip(cells.chosen, cells.rewards, strict=True):
            if len(set(chosen)) == 1:
                assert members[chosen[0]].reward == reward


class Numbers(Scripted):
    """Answers another digit for every action that it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.said = 0

    def actions(self, request: Request) -> list[Action]:
        digits = [str((self.said + g) % 4) for g in range(request.n)]
        self.said += request.n
        return [Action((8 + int(digit), 1), (-1.0, -0.5), digit, "stop") for digit in digits]


def test_replay_samples_alternatives_below_each_action_of_the_agent_before() -> None:
    environment, engine = Listens(turns=2), Numbers()
    player = Player(
        environment,
        make_team(),
        engine,
        SAMPLING,
        SequentialPipeline(),
        True,
        Replay((2, 2)),
        watcher=(heard := Hears()),
    )
    experience = player.play(groups(TOYS[:1], 4, 0, 1))
    assert [request.n for call in engine.calls[:2] for request in call] == [2, 2, 2]
    assert environment.heard[0] == [("0", "2"), ("0", "3"), ("1", "0"), ("1", "1")]
    assert [d.shared for d in experience.decisions[:4]] == [(), (0,), (), (0,)]
    assert [len(d.sampled()) for d in experience.decisions[:4]] == [2, 1, 2, 1]
    said = [[action.text for action in decision.actions] for decision in experience.decisions[:4]]
    assert said == [list(texts) for texts in environment.heard[0]]
    assert len({request.seed for call in engine.calls for request in call}) == sum(map(len, engine.calls))
    assert heard.count == sum(request.n for call in engine.calls for request in call), "heard once, as sampled once"
    assert len(experience.cells) == 1 + 4 and len(experience.decisions) == 4 + 16


class Hears(Watcher):
    """Counts the actions."""

    count = 0

    def finished(self, generation: Any, action: Action) -> None:
        self.count += 1


class Waits(Listens):
    """An agent without a part says 2."""

    def stub(self, state: Any, agent: int) -> str:
        return "2"


def test_removal_executes_the_stub_of_the_environment() -> None:
    environment = Waits()
    experience, _ = play(Removal(), environment)
    [heard] = environment.heard
    assert heard == [("0", "1"), ("1", "1"), ("2", "0"), ("2", "1"), ("0", "2"), ("1", "2"), ("2", "2")]
    [cells] = experience.cells
    assert len(cells.chosen) == 9 and cells.size == SIZE


class OneAfterAnother(Listens):
    """Two of three agents act in a turn."""

    def acting(self, state: Any) -> Sequence[int]:
        return ((0, 2), (1, 2))[state.turn]


def test_only_those_who_act_are_combined() -> None:
    environment = OneAfterAnother(("one", "two", "three"), turns=2)
    experience, _ = play(Cross(), environment)
    assert all(cells.chosen.shape == (SIZE**2, 2) for cells in experience.cells)
    assert {texts[1] for texts in environment.heard[0]} == {""} == {texts[0] for texts in environment.heard[1]}
    assert {(a, c) for a, _, c in environment.heard[0]} == {(a, c) for a in "012" for c in "201"}


class LosesPairs(Agree):
    """The infrastructure fails at the joint actions it is told."""

    def __init__(self, *lost: tuple[str, str]) -> None:
        super().__init__()
        self.lost = lost

    def step(self, states: Any, joint_actions: Any) -> Any:
        outcomes = super().step(states, joint_actions)
        return [
            type(o)(None, {}, {}, o.state, True) if tuple(texts) in self.lost else o
            for o, texts in zip(outcomes, joint_actions, strict=True)
        ]


def test_lost_combinations_are_counted_once_and_have_no_reward() -> None:
    experience, _ = play(Cross(), LosesPairs(("2", "1"), ("1", "1")))
    assert (experience.executed, experience.lost) == (6, 2)
    [cells] = experience.cells
    lost = {
        tuple(chosen) for chosen, reward in zip(cells.chosen.tolist(), cells.rewards, strict=True) if np.isnan(reward)
    }
    assert lost == {(1, 0), (1, 1), (2, 0), (2, 1)}  # the second agent said 1 twice
    assert [d.reward is None for d in experience.decisions] == [False, True, False]


def test_a_plan_that_does_not_exist_for_a_state_is_refused() -> None:
    with pytest.raises(ValueError, match=r"per_action .4. is more than the 3 actions"):
        play(Pairings(4), Agree())
