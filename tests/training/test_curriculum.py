"""Curriculum: gates that answer rightly, samplers that climb, come back, and continue after a kill."""

import json
from collections import Counter
from dataclasses import dataclass, replace

import pytest
from scipy import stats

from pipeline_lib.storage import folder_digest
from pipeline_lib.training.curriculum import (
    LAST_REWARD,
    Epochs,
    Levels,
    Mastery,
    Plateau,
    Sampler,
    Trial,
    Turns,
    has_signal,
    problem_order,
    wilson,
)
from tests.training.conftest import Agree, make_settings, make_team, run_training


@dataclass(frozen=True)
class Problem:
    level: int


PROBLEMS = [Problem(level) for level in (5, 2, 3) for _ in range(10)]
VALIDATION = [Problem(level) for level in (2, 3, 5) for _ in range(4)]
DEADLOCK = Mastery("deadlock", bound=0.1, smaller=True)


def levels(seed: int = 0, replay: float = 0.25, every: int = 5) -> Levels:
    return Levels(PROBLEMS, VALIDATION, DEADLOCK, replay, every, 4, seed)


def trial(value: float, count: int = 60, returns: tuple[float, ...] = (0.0, 1.0)) -> Trial:
    return Trial(({"deadlock": value},) * count, (returns,) * (count // 2))


def drawn_levels(sampler: Sampler, size: int) -> Counter[int]:
    return Counter(PROBLEMS[i].level for i in sampler.draw(size))


@pytest.mark.parametrize(
    ("returns", "worth"),
    [
        ([1.0, 2.0], True),
        ([1.0, 1.0], False),
        ([1.0], False),
        ([], False),
        ([None, 1.0], False),
        ([None, 1.0, 2.0], True),
    ],
)
def test_a_group_teaches_if_its_known_returns_differ(returns, worth):
    assert has_signal(returns) is worth


@pytest.mark.parametrize(("successes", "count"), [(0, 20), (3, 30), (15, 30), (30, 30)])
def test_wilsons_interval(successes, count):
    expected = stats.binomtest(successes, count).proportion_ci(method="wilson")
    assert wilson(successes / count, count) == pytest.approx((expected.low, expected.high), abs=1e-4)


def test_mastery_takes_evidence_not_only_a_good_mean():
    assert not DEADLOCK.mastered([0.0] * 10)
    assert DEADLOCK.mastered([0.0] * 60)
    assert not DEADLOCK.mastered([0.0] * 55 + [1.0] * 5)
    passes = Mastery("all_passed", bound=0.8, smaller=False)
    assert passes.mastered([1.0] * 30) and not passes.mastered([1.0] * 8)
    assert not passes.mastered([]) and not DEADLOCK.mastered([])


def test_epochs_are_the_plain_order_and_continue():
    sampler, other = Epochs(7, seed=3), Epochs(7, seed=3)
    first = sampler.draw(5)
    assert first + sampler.draw(9) == problem_order(7, 3, 0, 14)
    other.draw(5)
    again = Epochs(7, seed=3)
    again.restore(json.loads(json.dumps(other.state())))
    assert again.draw(9) == problem_order(7, 3, 5, 9)
    assert sampler.trial(5) == [] and sampler.record(trial(0.0)) == {}


def test_the_easiest_level_comes_first_and_alone():
    sampler = levels()
    assert sampler.levels == [2, 3, 5]
    assert set(drawn_levels(sampler, 100)) == {2}


def test_a_mastered_level_opens_the_next_and_comes_back():
    sampler = levels()
    assert [VALIDATION[i].level for i in sampler.trial(5)] == [2] * 4
    assert sampler.trial(4) == [] and sampler.level == 2
    found = sampler.record(trial(0.0))
    assert found["curriculum/level"] == 2 and found["curriculum/deadlock_bound"] < 0.1
    assert sampler.level == 3
    counts = drawn_levels(sampler, 1000)
    assert set(counts) == {2, 3} and 200 < counts[2] < 300
    sampler.record(trial(1.0))
    assert sampler.level == 3, "not mastered, so nothing opens"
    sampler.record(trial(0.0))
    counts = drawn_levels(sampler, 2000)
    assert sampler.level == 5 and abs(counts[2] - counts[3]) < 100 and counts[5] > 1400
    assert sampler.trial(5) == [], "there is nothing above the last level"


def test_a_level_that_teaches_nothing_any_more_is_left():
    sampler = levels()
    found = sampler.record(trial(1.0, returns=(0.5, 0.5)))
    assert found["curriculum/teaching_share"] == 0 and sampler.level == 3
    sampler.record(Trial(({"deadlock": 1.0},) * 4, ((0.5, 0.5), (0.1, 0.5))))
    assert sampler.level == 3, "one group still has a gradient"


def test_within_a_level_every_problem_has_its_turn():
    counts = Counter(levels().draw(30))
    assert set(counts.values()) == {3}


def test_a_sampler_continues_where_it_was():
    sampler = levels(seed=1)
    sampler.draw(17)
    sampler.record(trial(0.0))
    sampler.draw(11)
    again = levels(seed=1)
    again.restore(json.loads(json.dumps(sampler.state())))
    assert again.level == sampler.level
    assert again.draw(40) == sampler.draw(40)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="level 5 has no validation problem"):
        Levels(PROBLEMS, [Problem(2), Problem(3)], DEADLOCK, 0.2, 5, 4, 0)
    with pytest.raises(ValueError, match="no metric 'deadlock'; this environment has: reward, tests_passed"):
        levels().record(Trial(({"tests_passed": 1.0, "reward": 1.0},), ((1.0, 0.0),)))


@dataclass(frozen=True)
class LeveledToy:
    id: str
    text: str
    level: int


TOYS = [LeveledToy("toy/red", "red", 1), LeveledToy("toy/green", "green", 2), LeveledToy("toy/blue", "blue", 3)]
TRIALS = [LeveledToy(f"trial/{toy.text}", toy.text, toy.level) for toy in TOYS]


def climb(folder, steps: int, **changes: object):
    curriculum = {"kind": "levels", "metric": "solved", "bound": 0.5, "every": 3, "episodes": 16} | changes
    settings = make_settings(steps=steps, checkpoint_every=5, curriculum=curriculum)
    return run_training(folder, make_team(), Agree(), settings=settings, problems=TOYS, validation=TRIALS)


def test_the_trainer_climbs_and_logs_it(tmp_path):
    _, steps = climb(tmp_path, 30)
    levels_tried = [step["curriculum/level"] for step in steps if "curriculum/level" in step]
    assert levels_tried == sorted(levels_tried) and levels_tried[0] == 1 and levels_tried[-1] >= 2
    assert all("curriculum/level" not in step for number, step in enumerate(steps, 1) if number % 3)
    assert all(0 <= step["curriculum/solved_bound"] <= 1 for step in steps if "curriculum/level" in step)


def test_a_cut_run_with_a_curriculum_ends_with_the_same_weights(tmp_path):
    climb(tmp_path / "whole", 20)
    climb(tmp_path / "cut", 10)
    climb(tmp_path / "cut", 20)
    whole, cut = (folder_digest(tmp_path / name / "scratch" / "step-00020") for name in ("whole", "cut"))
    assert whole == cut


def test_a_metric_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match="no metric 'deadlock'; this environment has: solved"):
        climb(tmp_path, 5, metric="deadlock")


RISING = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]


def test_a_plateau_is_a_window_that_is_hardly_better_than_the_one_before():
    plateau = Plateau(window=2, rise=0.05)
    assert not plateau.reached([0.5, 0.5, 0.5]), "less than two windows"
    assert plateau.reached([0.0, 0.9, 0.5, 0.5, 0.5, 0.52])
    assert not plateau.reached(RISING)
    assert plateau.reached(RISING[::-1]), "falling is not rising"


def turns(most: int = 3) -> Turns:
    return Turns(7, 3, most, Plateau(2, 0.04))


def test_turns_are_added_one_by_one_when_the_reward_stops_rising():
    sampler = turns()
    seen = []
    for reward in [*RISING, *[0.9] * 3, *RISING, *[0.9] * 20]:
        seen.append(sampler.turns)
        sampler.updated({LAST_REWARD: reward})
    assert seen == sorted(seen) and set(seen) == {1, 2, 3}
    assert seen.index(2) == 12 and seen.index(3) == 24, "after a window each, counted anew for each turn"
    assert turns().draw(9) == Epochs(7, 3).draw(9), "the order of problems is the plain one"


def test_a_curriculum_over_turns_continues_where_it_was():
    sampler = turns()
    sampler.draw(5)
    for reward in [0.5] * 4 + [0.1, 0.5, 0.6]:
        sampler.updated({LAST_REWARD: reward})
    again = turns()
    again.restore(json.loads(json.dumps(sampler.state())))
    assert again.turns == sampler.turns == 2 and again.draw(9) == sampler.draw(9)
    for one in (again, sampler):
        one.updated({LAST_REWARD: 0.5})
    assert again.state() == sampler.state()


class Retried(Agree):
    retries = True


def widen(folder, steps: int, **changes: object):
    curriculum = {"kind": "turns", "window": 2, "rise": 0.1} | changes
    settings = make_settings(steps=steps, checkpoint_every=3, curriculum=curriculum)
    return run_training(folder, make_team(), Retried(turns=2), settings=settings)


def test_the_trainer_adds_a_turn_and_logs_it(tmp_path):
    _, steps = widen(tmp_path, 12, rise=1.0)
    assert [step["curriculum/turns"] for step in steps] == [1.0] * 4 + [2.0] * 8
    assert len({step["executions/count"] for step in steps[:4]}) == 1, "one turn ends every episode"
    assert steps[4]["executions/count"] > steps[3]["executions/count"]
    assert steps[3]["curriculum/last_reward"] == pytest.approx(steps[3]["reward/mean"])


def test_a_cut_run_with_a_curriculum_over_turns_ends_with_the_same_weights_and_metrics(tmp_path):
    """The cuts fall into the window before the turn is added, and behind it."""
    widen(tmp_path / "whole", 9, rise=1.0)
    for steps in (3, 6, 9):
        widen(tmp_path / "cut", steps, rise=1.0)
    whole, cut = (folder_digest(tmp_path / name / "scratch" / "step-00009") for name in ("whole", "cut"))
    assert whole == cut
    turns_of = [
        [json.loads(line)["curriculum/turns"] for line in (tmp_path / name / "scratch/metrics.jsonl").open()]
        for name in ("whole", "cut")
    ]
    assert turns_of[0] == turns_of[1] == [1.0] * 4 + [2.0] * 5


class Paid(Retried):
    """Pays for what the next turn needs."""

    def ending(self, state):
        return replace(state, seen=("ends",))

    def step(self, states, joint_actions):
        outcomes = super().step(states, joint_actions)
        paid = [0.0 if state.turn + 1 >= self.turns or state.seen == ("ends",) else 1.0 for state in states]
        return [replace(o, details={"costs": {"paid": cost}}) for o, cost in zip(outcomes, paid, strict=True)]


def test_nothing_is_paid_for_a_turn_that_is_not_open_yet(tmp_path):
    curriculum = {"kind": "turns", "window": 2, "rise": 1.0}
    settings = make_settings(steps=6, checkpoint_every=3, curriculum=curriculum)
    _, steps = run_training(tmp_path, make_team(), Paid(turns=2), settings=settings)
    assert [step["costs/paid"] > 0 for step in steps] == [False] * 4 + [True] * 2


def test_a_curriculum_over_turns_needs_turns(tmp_path):
    settings = make_settings(steps=3, checkpoint_every=3, curriculum={"kind": "turns"})
    with pytest.raises(ValueError, match=r"environment\.turns to 2 or more"):
        run_training(tmp_path, make_team(), Retried(turns=1), settings=settings)
    with pytest.raises(ValueError, match="attempts at the same thing"):
        run_training(tmp_path, make_team(), Agree(turns=2), settings=settings)
