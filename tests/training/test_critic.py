"""The centralised critic: its values in an enumerated game, its advantages, and trainings with it."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline_lib.play.experience import Decision, Experience
from pipeline_lib.policies.store import team_digest
from pipeline_lib.rollouts.engine import Action
from pipeline_lib.settings.train import AdvantageSettings
from pipeline_lib.training.advantages import returns_to_go
from pipeline_lib.training.credit import credit_by_critic
from pipeline_lib.training.critic import Critic, explained_variance, lag
from tests.training.conftest import Agree, make_settings, make_team, run_training

TEAMS = {"a": ("one", "two"), "b": ("one", "two")}
COUNTERFACTUAL = AdvantageSettings(baseline="counterfactual")


def decision(problem: str, said: tuple[str, str], reward: float | None, **changes: Any) -> Decision:
    actions = tuple(Action((8,), (-0.1,), text, "stop") for text in said)
    made = Decision(problem, 0, 0, None, 1.0, ("one", "two"), ((5,), (6,)), actions, reward)
    made.agents, made.seen = ("one", "two"), (f"pick {'red' if problem == 'a' else 'blue'} left", "pick right")
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def reader() -> Any:
    return make_team().policies["one"]


def test_values_are_expected_returns_of_an_enumerated_game() -> None:
    """V(h) = E[R | h] and V_i(h, a_-i) = E[R | h, a_-i], under policies with known probabilities."""
    rng = np.random.default_rng(3)
    words = ["0", "1", "2"]
    policies = {problem: rng.dirichlet([2, 2, 2], size=2) for problem in TEAMS}
    tables = {problem: 5 + 2 * rng.normal(size=(3, 3)) for problem in TEAMS}
    cells = [(problem, i, j) for problem in TEAMS for i, j in itertools.product(range(3), repeat=2)]
    chance = [policies[p][0, i] * policies[p][1, j] for p, i, j in cells]
    # Often, because what is hidden of each is drawn.
    decisions = [decision(p, (words[i], words[j]), float(tables[p][i, j])) for p, i, j in cells] * 20
    chance *= 20
    settings = {"passes": 50, "learning_rate": 3e-4}
    critic = Critic(
        AdvantageSettings.model_validate({"baseline": "counterfactual", "critic": settings}), reader(), 2, 0
    )
    for _ in range(8):
        seen = critic.read(decisions, TEAMS)
        critic.learn(seen, [d.reward for d in decisions], chance)
    values, baselines = critic.values(seen), np.array(critic.baselines(seen))
    mean = {p: policies[p][0] @ tables[p] @ policies[p][1] for p in TEAMS}
    assert values[: len(cells)] == pytest.approx([mean[p] for p, *_ in cells], abs=0.2)
    # Agent one is judged given what two did, and the other way round.
    exact = np.array([(policies[p][0] @ tables[p][:, j], tables[p][i] @ policies[p][1]) for p, i, j in cells])
    assert exact.std(axis=0).min() > 0.9
    errors = baselines[: len(cells)] - exact
    assert (errors**2).mean() ** 0.5 < 0.25 and np.abs(errors).max() < 0.6
    alone = Critic(AdvantageSettings.model_validate({"baseline": "critic", "critic": settings}), reader(), 2, 0)
    for _ in range(4):
        seen = alone.read(decisions, TEAMS)
        alone.learn(seen, [d.reward for d in decisions], chance)
    for row, (p, *_) in enumerate(cells):
        assert alone.baselines(seen)[row] == (pytest.approx(mean[p], abs=0.1),) * 2


def test_a_baseline_does_not_depend_on_the_agents_own_action() -> None:
    critic = Critic(COUNTERFACTUAL, reader(), 2, 0)
    shown = [decision("a", pair, reward) for pair, reward in ((("0", "1"), 1.0), (("2", "1"), 3.0), (("0", "2"), 0.5))]
    for _ in range(5):
        critic.learn(critic.read(shown, TEAMS), [d.reward for d in shown], [1.0] * 3)
    same, other, third = critic.baselines(critic.read(shown, TEAMS))
    rounding = 1e-6  # products of several threads round rows differently
    for unlike, changed in ((other, 1), (third, 0)):  # of the agent whose partner acted otherwise
        assert unlike[1 - changed] == pytest.approx(same[1 - changed], rel=rounding)
        assert unlike[changed] != pytest.approx(same[changed], rel=100 * rounding)
    seen = critic.read(shown, TEAMS)
    assert torch.equal(seen.observed, seen.observed[:1].expand(3, -1)), "the state is the same whatever was done"
    values = critic.values(seen)
    assert values == pytest.approx([values[0]] * 3, rel=rounding)


def test_the_gradient_is_unbiased_for_any_critic() -> None:
    """Enumerate a game: the expected gradient is exact with any b(h) and b_i(h, a_-i), and not with b_i(h, a)."""
    rng = np.random.default_rng(0)
    size = 3
    logits = rng.normal(size=(2, size))
    policies = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    table = rng.normal(size=(size, size))
    joint = policies[0][:, None] * policies[1]
    expected = float((joint * table).sum())
    exact = [p * ((joint * table).sum(axis=1 - i) / p - expected) for i, p in enumerate(policies)]
    of_state, given_other = rng.normal(size=1)[0], rng.normal(size=(2, size))
    wrong = rng.normal(size=(2, size, size))
    for kind in ("state", "others", "own action"):
        found = [np.zeros(size), np.zeros(size)]
        for i, j in itertools.product(range(size), repeat=2):
            baselines = {
                "state": (of_state, of_state),
                "others": (given_other[0, j], given_other[1, i]),
                "own action": (wrong[0, i, j], wrong[1, i, j]),
            }[kind]
            experience = Experience([decision("a", ("0", "1"), float(table[i, j]))])
            (row,), _ = credit_by_critic(experience, [float(table[i, j])], [baselines], COUNTERFACTUAL)
            for agent, action in enumerate((i, j)):
                score = (np.arange(size) == action) - policies[agent]
                found[agent] += joint[i, j] * row[agent] * score
        if kind == "own action":
            assert np.abs(found[0] - exact[0]).max() > 0.05
        else:
            np.testing.assert_allclose(found, exact, atol=1e-12)


@pytest.mark.parametrize("trace", [0.0, 0.4, 1.0])
def test_advantages_are_generalised_advantage_estimates(trace: float) -> None:
    """R - V(h) against the sum of (discount lambda)^l delta (arXiv 1506.02438), written out, on one long episode."""
    rng = np.random.default_rng(1)
    rewards, values = rng.normal(size=6), rng.normal(size=6)
    discount = 0.9
    parents = [None, 0, 1, 2, 3, 4]
    found = returns_to_go(rewards.tolist(), parents, discount, values=values.tolist(), trace=trace)
    after = np.append(values[1:], 0.0)
    delta = rewards + discount * after - values
    for t in range(6):
        expected = sum((discount * trace) ** step * delta[t + step] for step in range(6 - t))
        assert found[t] is not None and found[t] - values[t] == pytest.approx(expected)
    if trace == 1.0:
        assert found == pytest.approx(returns_to_go(rewards.tolist(), parents, discount))


def test_returns_on_a_tree_take_the_value_of_the_state_below() -> None:
    """Two joint actions in the state below the first: one of them was lost, and that below the second entirely."""
    rewards = [1.0, 2.0, 3.0, None, None, None]
    parents = [None, None, 0, 0, 1, 1]
    values = [9.0, 9.0, 7.0, 7.0, 5.0, 5.0]
    found = returns_to_go(rewards, parents, 0.5, values=values, trace=0.25)
    assert found == [1 + 0.5 * (0.25 * 3 + 0.75 * 7), None, 3.0, None, None, None]


def test_a_scale_divides_by_the_spread_of_the_groups_returns() -> None:
    decisions = [decision("a", ("0", "1"), r, group=g) for r, g in ((1.0, 0), (3.0, 0), (2.0, 1), (2.0, 1), (None, 1))]
    rewards = [d.reward for d in decisions]
    rule = AdvantageSettings(baseline="critic", scale="group_std")
    found, flat = credit_by_critic(Experience(decisions), rewards, [(0.5, 1.0)] * 5, rule)
    assert found == [(0.5, 0.0), (2.5, 2.0), (1.5, 1.0), (1.5, 1.0), (None, None)]
    assert flat == 0.5
    assert credit_by_critic(Experience([decisions[4]]), [None], [(0.5, 1.0)], rule) == ([(None, None)], 0.0)


def test_explained_variance() -> None:
    returns, weights = np.array([1.0, 3.0, 5.0]), np.ones(3)
    assert explained_variance(returns, returns + 7, weights) == pytest.approx(1.0), "a constant error does not count"
    assert explained_variance(returns, np.zeros(3), weights) == 0.0
    assert explained_variance(returns, -returns, weights) == pytest.approx(-3.0)
    assert explained_variance(np.ones(3), returns, weights) is None
    assert explained_variance(np.array([0.0, 1.0]), np.array([0.0, 0.5]), np.array([1.0, 3.0])) == pytest.approx(0.75)


def test_predictions_stay_when_the_scale_of_returns_moves() -> None:
    critic = Critic(COUNTERFACTUAL, reader(), 2, 0)
    shown = [decision("a", ("0", "1"), 0.0), decision("b", ("2", "1"), 0.0)]
    critic.learn(critic.read(shown, TEAMS), [0.0, 0.0], [1.0, 1.0])  # a sparse reward: nobody has earned it yet
    critic.learn(critic.read(shown, TEAMS), [0.0, 1.0], [1.0, 1.0])
    seen = critic.read(shown, TEAMS)
    before = critic.values(seen)
    critic._follow(torch.tensor([500.0, 900.0], dtype=torch.float64), torch.ones(2, dtype=torch.float64))
    assert critic.values(seen) == pytest.approx(before, rel=1e-3, abs=1e-3)
    after = []
    for _ in range(120):
        critic.learn(critic.read(shown, TEAMS), [500.0, 900.0], [1.0, 1.0])
        after.append(critic.values(seen))
    # Learning from two decisions only is noisy: single values jump, and on another processor at other updates.
    assert np.mean(after[60:], axis=0) == pytest.approx([500, 900], abs=20)


def test_a_restored_critic_goes_on_with_the_same_bits() -> None:
    shown = [decision("a", ("0", "1"), 1.0), decision("b", ("2", "1"), None), decision("b", ("2", "2"), 3.0)]
    rewards, weights = [d.reward for d in shown], [1.0, 0.5, 0.5]
    first = Critic(COUNTERFACTUAL, reader(), 2, 0)
    for _ in range(2):
        first.learn(first.read(shown, TEAMS), rewards, weights)
    second = Critic(COUNTERFACTUAL, reader(), 2, 0)
    second.restore(first.state())
    for critic in (first, second):
        critic.learn(critic.read(shown, TEAMS), rewards, weights)
    one, other = first.state(), second.state()
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_the_critic_keeps_no_cache_of_what_it_reads() -> None:
    """A cache of keys and values, which nobody would read, takes a gigabyte for a model of three billion parameters."""
    critic = Critic(COUNTERFACTUAL, reader(), 2, 0)
    caches = []
    critic._decoder.register_forward_hook(lambda module, args, output: caches.append(output.past_key_values))
    critic.read([decision("a", ("0", "1"), 1.0)], TEAMS)
    assert caches and caches == [None] * len(caches)


@pytest.mark.parametrize("lora", [False, True])
def test_the_critic_reads_with_the_untrained_base(lora: bool) -> None:
    """Its features do not move with the policy that is trained."""
    team = make_team(lora=lora)
    policy = team.policies["one"]
    critic = Critic(COUNTERFACTUAL, policy, 2, 0)
    shown = [decision("a", ("0", "1"), 1.0), decision("b", ("2", "1"), 2.0)]
    before = critic.read(shown, TEAMS)
    with torch.no_grad():
        for _, parameter in policy.trainable():
            parameter.add_(0.1)
    after = critic.read(shown, TEAMS)
    assert torch.equal(before.observed, after.observed) and torch.equal(before.said, after.said)


@pytest.mark.parametrize("baseline", ["critic", "counterfactual"])
@pytest.mark.parametrize("turns", [1, 2])
def test_a_team_learns_with_a_critic(tmp_path: Path, baseline: str, turns: int) -> None:
    settings = make_settings(
        steps=20, group_size=8, groups="episodes", learning_rate=3e-2, advantage={"baseline": baseline}
    )
    _, steps = run_training(tmp_path, make_team(), Agree(turns=turns), settings=settings)
    first, last = (np.mean([step["reward/mean"] for step in part]) for part in (steps[:3], steps[-3:]))
    assert last > first + 0.1
    assert "critic/explained_variance" not in steps[0], "it knows nothing yet"
    assert all(step.get("critic/explained_variance", 0.0) <= 1 for step in steps)
    named = [f"critic/explained_variance/{name}" in steps[1] for name in ("one", "two")]
    assert named == [baseline == "counterfactual"] * 2
    assert all(step["time/critic_s"] > 0 and step["critic/error"] >= 0 for step in steps)


def test_the_first_update_is_that_of_leave_one_out(tmp_path: Path) -> None:
    digests = []
    for baseline in ("leave_one_out", "critic", "counterfactual"):
        team = make_team()
        settings = make_settings(steps=1, checkpoint_every=1, advantage={"baseline": baseline})
        run_training(tmp_path, team, Agree(), settings=settings, scratch=tmp_path / baseline)
        digests.append(team_digest(team))
    assert len(set(digests)) == 1


def test_lost_joint_actions_are_left_out(tmp_path: Path) -> None:
    settings = make_settings(steps=3, checkpoint_every=3, advantage={"baseline": "counterfactual"})
    _, steps = run_training(tmp_path, make_team(), Agree(fail=["toy/red"]), settings=settings, infra_error_share=1.0)
    assert steps[-1]["groups/masked_share"] == pytest.approx(1 / 3)
    assert np.isfinite(steps[-1]["critic/error"])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"credit": {"kind": "cross"}}, "credit cross executes others"),
        ({"individual_reward": 0.5}, "individual_reward"),
    ],
)
def test_what_a_critic_cannot_judge_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        make_settings(advantage={"baseline": "critic"}, **changes)


def test_settings_of_a_critic_that_is_not_there_are_refused() -> None:
    with pytest.raises(ValueError, match="not used with baseline mean"):
        make_settings(advantage={"critic": {"trace": 0.5}})


def test_a_critic_that_lags_behind_is_lifted_by_other_problems() -> None:
    """What other problems earned beyond its predictions, in the same turn; nothing of the decision's own problem."""
    rows = [("a", 0, 3.0), ("a", 0, 5.0), ("b", 0, 2.0), ("b", 0, None), ("c", 0, 6.0), ("b", 1, 9.0)]
    decisions = [decision(name, ("0", "1"), value, turn=turn) for name, turn, value in rows]
    returns = [d.reward for d in decisions]
    found = lag(decisions, returns, [(1.0, 2.0)] * 6)
    others = {"a": (2 + 6) / 2, "b": (3 + 5 + 6) / 3, "c": (3 + 5 + 2) / 3}
    assert found == pytest.approx([others[name] - 1.5 if turn == 0 else 0.0 for name, turn, _ in rows])
