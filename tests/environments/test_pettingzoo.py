"""Parallel games of PettingZoo, played from text."""

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pettingzoo
import pytest
from mpe2 import simple_speaker_listener_v4

import symposium
from pipeline_lib.audit.result import Status
from pipeline_lib.environments import pettingzoo as module
from pipeline_lib.environments.pettingzoo import (
    PettingZooProblems,
    PettingZooSettings,
    PettingZooTask,
    Start,
    ZooExaminer,
    ZooGame,
    chosen,
    described,
    prompt,
)
from pipeline_lib.problems.content import ProblemsError

TASK = PettingZooTask()
LISTENER = "mpe2.simple_speaker_listener_v4:parallel_env"


def starts(game: str = LISTENER, count: int = 4, **settings: Any) -> list[Start]:
    sizes = {"train": count, "validation": 1, "test": 1}
    return list(TASK.make_problems(PettingZooProblems(game=game, sizes=sizes, **settings))["train"])


def play(game: ZooGame, start: Start, joint_actions: Sequence[Sequence[str]]) -> list[Any]:
    """Return the outcomes of an episode."""
    state, outcomes = game.start(start), []
    for actions in joint_actions:
        (outcome,) = game.step([state], [actions])
        outcomes.append(outcome)
        state = outcome.state
    return outcomes


class Toll(pettingzoo.ParallelEnv):  # type: ignore[type-arg]
    """Who acts pays, so it is best not to act; ``steady`` false: with noise that no seed determines."""

    metadata = {"name": "toll"}  # noqa: RUF012

    def __init__(self, steady: bool = True, continuous: bool | str = False) -> None:
        self.possible_agents = ["left", "right"]
        self._steady, self._continuous = steady, continuous
        self.action_space("left")

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        return gymnasium.spaces.Discrete(10)

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        spaces = gymnasium.spaces
        kinds = {False: spaces.Discrete(3), True: spaces.Box(0, 1), "bits": spaces.MultiBinary(2)}
        assert self._continuous in kinds, "no such actions"
        return kinds[self._continuous]

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self._turn = list(self.possible_agents), 0
        return self._seen(), {}

    def _seen(self) -> dict[str, int]:
        noise = 0 if self._steady else random.SystemRandom().randrange(1000)
        return dict.fromkeys(self.agents, self._turn + noise)

    def step(self, actions: dict[str, int]) -> Any:
        self._turn += 1
        paid = {agent: -float(action) for agent, action in actions.items()}
        over = {agent: agent == "left" and self._turn == 2 for agent in actions}
        self.agents = [agent for agent in self.agents if not over[agent]]
        return self._seen(), paid, over, dict.fromkeys(actions, False), {agent: {} for agent in actions}


HERE = f"{__name__}:Toll"


@pytest.mark.parametrize("seed", range(3))
def test_an_episode_is_that_of_the_game_itself(seed: int):
    """The reference plays the game directly."""
    start = starts(options={"max_cycles": 6})[seed]
    game = ZooGame(PettingZooSettings(turns=6, rewards=(-1.0, 0.0)))
    rng = random.Random(seed)
    moves = [(rng.randrange(3), rng.randrange(5)) for _ in range(6)]
    direct = simple_speaker_listener_v4.parallel_env(max_cycles=6)
    seen, _ = direct.reset(seed=start.seed)
    state, earned = game.start(start), 0.0
    for number, move in enumerate(moves):
        assert [game.observe(state, agent) for agent in range(2)] == [
            f"{agent} " + " ".join(f"{round(float(x), 2) + 0.0:.2f}" for x in seen[agent]) + "\n>" for agent in seen
        ]
        (outcome,) = game.step([state], [[str(action) for action in move]])
        seen, paid, _, _, _ = direct.step(dict(zip(("speaker_0", "listener_0"), move, strict=True)))
        reward = max(-1.0, (paid["speaker_0"] + paid["listener_0"]) / 2)
        assert outcome.reward == pytest.approx(reward, abs=1e-12) and outcome.done == (number == 5)
        earned, state = earned + reward, outcome.state
    assert outcome.metrics["game_score"] == pytest.approx((earned + 6) / 6)
    assert game.episode_bounds == (-6.0, 0.0)


def test_states_are_values_and_go_on_from_any_of_them(monkeypatch: pytest.MonkeyPatch):
    start = starts(options={"max_cycles": 9})[0]
    moves = [[str(turn % 3), str(turn % 5)] for turn in range(6)]
    alone = [outcome.reward for outcome in play(ZooGame(PettingZooSettings(turns=8)), start, moves)]
    for kept in (1024, 1):
        monkeypatch.setattr(module, "_KEPT", kept)
        game = ZooGame(PettingZooSettings(turns=8))
        states = [game.start(start)]
        for actions in moves:
            outcomes = game.step([states[-1]] * 3, [["2", "2"], actions, actions])
            assert outcomes[1] == outcomes[2]
            states.append(outcomes[1].state)
        again = [game.step([state], [actions])[0].reward for state, actions in zip(states, moves, strict=False)]
        assert again == alone


def test_texts_become_actions():
    assert [chosen(text, range(3)) for text in ("2", " 1\n", "I take 0, not 1", "3", "-1", "two", "", "9" * 5000)] == [
        2, 1, 0, None, None, None, None, None,
    ]  # fmt: skip
    game = ZooGame(PettingZooSettings(turns=4))
    (start,) = starts(count=1)
    said, first = play(game, start, [["so", "9"]])[0], play(game, start, [["0", "0"]])[0]
    assert said.reward == first.reward and said.metrics["unreadable_actions"] == 1.0
    assert first.metrics["unreadable_actions"] == 0.0


def test_observations_become_texts():
    assert described(np.array([0.126, -0.001, -2.0], np.float32)) == "0.13 0.00 -2.00"
    assert described(np.array([[1, 0], [0, 1]], np.int8)) == "1 0 0 1" and described(3) == "3"
    assert described({"hand": np.array([True, False]), "left": 2}) == "hand 1 0, left 2"
    assert described((np.zeros(2), 3, [0.5, {"at": (1, 2)}])) == "0.00 0.00 3 0.50 at 1 2"


def test_one_agent_for_all_plays_the_same_game():
    (start,) = starts(count=1)
    team, single = (ZooGame(PettingZooSettings(turns=5, team=kind)) for kind in ("agents", "single"))
    moves = [("2", "1"), ("0", "4"), ("1", "3")]
    together = [outcome.reward for outcome in play(team, start, moves)]
    assert together == [o.reward for o in play(single, start, [["\n".join(move)] for move in moves])]
    named = [
        ["\n".join(f"{name}: {move}" for name, move in zip(team.agents(start), pair, strict=True))] for pair in moves
    ]
    assert together == [o.reward for o in play(single, start, named)]
    turned = [["\n".join(reversed(lines.splitlines()))] for (lines,) in named]
    assert together == [o.reward for o in play(single, start, turned)], "a name says whose line it is"
    assert single.agents(start) == ("single",)
    seen = single.observe(single.start(start), 0)
    assert all(team.observe(team.start(start), agent).splitlines()[0] in seen for agent in range(2))


def test_agents_leave_a_game_and_the_others_go_on():
    (start,) = starts(HERE, count=1)
    game = ZooGame(PettingZooSettings(turns=4, rewards=(-2.0, 0.0)))
    state = game.start(start)
    acting, rewards = [], []
    for _ in range(4):
        acting.append(list(game.acting(state)))
        (outcome,) = game.step([state], [["2", "1"]])
        rewards.append(outcome.reward)
        state = outcome.state
    assert acting == [[0, 1], [0, 1], [1], [1]] and rewards == [-1.5, -1.5, -0.5, -0.5]


def test_plain_prompts_say_what_an_agent_may_do():
    (start,) = starts(count=1, prompt="plain")
    told = prompt(start, ("listener_0",), {"listener_0": "0.10 0.20"})
    for words in ("simple speaker listener", "listener_0 observes: 0.10 0.20", "a whole number from 0 to 4"):
        assert words in told


def test_the_audit_accepts_a_game_that_pays_for_looking_and_refuses_one_that_pays_for_nothing():
    looked_at = ZooGame(PettingZooSettings(turns=6, rewards=(-4.0, 0.0)))
    _, checks = ZooExaminer().examine(looked_at, starts(count=12), 0, lambda *_: None)
    assert not [check for check in checks if check.status is Status.FAIL]
    toll = ZooGame(PettingZooSettings(turns=2, rewards=(-2.0, 0.0)))
    _, checks = ZooExaminer().examine(toll, starts(HERE, count=6), 0, lambda *_: None)
    assert [check for check in checks if check.status is Status.FAIL]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"game": "mpe2.simple_nothing:parallel_env"}, r"cannot import mpe2.simple_nothing .*pip install"),
        ({"game": f"{LISTENER}s"}, "cannot make .*parallel_envs"),
        ({"options": {"cycles": 3}}, "problems.options .*cycles"),
        ({"options": {"continuous_actions": True}}, "the actions of speaker_0 .* not Discrete.*continuous_actions"),
        ({"game": HERE, "options": {"continuous": True}}, "the actions of left"),
        ({"game": HERE, "options": {"continuous": "bits"}}, "the actions of left .* MultiBinary"),
        ({"game": HERE, "options": {"continuous": "some"}}, "cannot make .* with problems.options .*no such actions"),
        ({"game": "mpe2.simple_speaker_listener_v4:env"}, "parallel interface"),
    ],
)
def test_what_cannot_be_played_is_told_in_words(settings: dict[str, Any], said: str):
    with pytest.raises(ProblemsError, match=said):
        starts(**settings)


@pytest.mark.parametrize("rewards", [(0.0, 0.0), (1.0, -1.0)])
def test_rewards_that_are_no_interval_are_refused(rewards: tuple[float, float]):
    with pytest.raises(ValueError, match="must be a least and a greatest joint reward"):
        PettingZooSettings(rewards=rewards)
    with pytest.raises(ValueError, match="finite number"):
        PettingZooSettings(rewards=(-math.inf, 0.0))


def test_a_game_with_chance_of_its_own_is_refused():
    TASK.check_problems(starts(), lambda: None)
    TASK.check_problems(starts(HERE), lambda: None)
    with pytest.raises(ProblemsError, match="goes on differently after the same seed and the same actions"):
        TASK.check_problems(starts(HERE, options={"steady": False}), lambda: None)


def test_starts_are_different_and_survive_a_file():
    sizes = {"train": 50, "validation": 20, "test": 20}
    splits = TASK.make_problems(PettingZooProblems(sizes=sizes))
    every = [start for split in splits.values() for start in split]
    assert len({start.content_hash for start in every}) == 90
    assert [TASK.read_problem(json.loads(json.dumps(start.to_json()))) for start in every] == every


@pytest.mark.drawn("a training in an environment", "pipeline_lib")
def test_a_game_of_three_agents_is_trained(tmp_path: Path):
    experiment = symposium.Experiment(
        tmp_path,
        {"kind": "pettingzoo", "turns": 3, "rewards": [-6.0, 0.0]},
        problems={"game": "mpe2.simple_spread_v3:parallel_env", "sizes": {"train": 24, "validation": 4, "test": 4}},
        policy={"hidden_size": 32, "mlp_size": 64, "warm_start": {"steps": 40, "batch": 16}},
        rollouts={"max_new_tokens": 4},
        audit={"problems": 6, "group_size": 4},
        train={"steps": 2, "problems_per_step": 4, "group_size": 4, "checkpoint_every": 2},
        evaluate={"baselines": [], "validation": {"samples": 2}},
    )
    checkpoints = symposium.sweep(symposium.train(experiment))
    assert set(checkpoints.base.means) >= {"reward", "game_score", "unreadable_actions"}
    assert 0.0 < checkpoints.base.means["game_score"] < 1.0
