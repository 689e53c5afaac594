"""What an action is worth: closed forms, unbiased against enumeration, the known variances, names, lost cells."""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline_lib.credit.plans import Aligned, Column, Cross, Latin, Pairings, Plan, Removal, Replay
from pipeline_lib.settings.train import AdvantageSettings
from pipeline_lib.training.advantages import group_advantages

LEAVE_ONE_OUT = AdvantageSettings(baseline="leave_one_out")
Floats = NDArray[np.float64]


def advantages(plan: Plan, game: Floats, actions: NDArray[np.int64], settings: AdvantageSettings) -> Floats:
    """Return the advantages, shape (agents, G), of one group in a game, a table of rewards by joint action.

    Args:
        plan: the plan.
        game: shape (actions,) * agents.
        actions: shape (G, agents), what was sampled.
        settings: the baseline.
    """
    size, agents = actions.shape
    cells = plan.cells(agents, size)
    # Without its part an agent does the game's first action.
    rewards = game[tuple(np.where(cells[:, i] < 0, 0, actions[cells[:, i], i]) for i in range(agents))]
    table = plan.compare(cells, rewards, size)
    found = np.empty((agents, size))
    for i, j in itertools.product(range(agents), range(size)):
        found[i, j] = group_advantages(table[i, j % table.shape[1]], settings)[j]
    return found


#: Both must do the same: nobody alone is to be blamed or praised.  And: only the first agent matters.
MATCH = np.array([[1.0, 0.0], [0.0, 1.0]])
FIRST = np.array([[1.0, 1.0], [0.0, 0.0]])
BOTH = np.array([[0, 0], [1, 1]])  # G = 2: joint actions (0, 0) and (1, 1)
SPLIT = np.array([[0, 1], [1, 1]])


@pytest.mark.parametrize(
    ("plan", "game", "sampled", "expected"),
    [
        # rewards of the joint actions 1 and 1: nothing to compare
        (Aligned(), MATCH, BOTH, [[0, 0], [0, 0]]),
        # every row holds one hit and one miss
        (Cross(), MATCH, BOTH, [[0, 0], [0, 0]]),
        # beside a partner that holds its action, matching is right and the other wrong
        (Column(), MATCH, BOTH, [[0.5, 0.5], [0.5, 0.5]]),
        # joint rewards 1 and 0: aligned praises and blames the second agent too, who does not matter
        (Aligned(), FIRST, BOTH, [[0.5, -0.5], [0.5, -0.5]]),
        (Cross(), FIRST, BOTH, [[0.5, -0.5], [0, 0]]),
        (Column(), FIRST, BOTH, [[0.5, -0.5], [0, 0]]),
        # what the team gets when the agent does the first action instead: 1 and 0, for both
        (Removal(), MATCH, BOTH, [[-0.5, 0.5], [-0.5, 0.5]]),
        (Removal(), FIRST, BOTH, [[0.5, -0.5], [0, 0]]),
        # the second agent does the same twice: rows (0, 0) and (1, 1) of the first, equal rows of the second
        (Cross(), MATCH, SPLIT, [[-0.5, 0.5], [0, 0]]),
    ],
)
def test_closed_forms_in_games_of_two_actions(plan: Plan, game: Floats, sampled: Floats, expected: Floats) -> None:
    assert advantages(plan, game, sampled, AdvantageSettings()) == pytest.approx(np.array(expected, dtype=float))


def test_an_action_is_worth_the_mean_of_its_cells_whatever_their_number() -> None:
    """A sum would grow with the number of partners: with G = 4 and three agents by 16."""
    effect = np.array([0.0, 1.0, 3.0, 4.0])
    game = np.broadcast_to(effect[:, None, None], (4, 4, 4))
    sampled = np.repeat(np.arange(4)[:, None], 3, axis=1)
    for plan in (Aligned(), Pairings(3), Latin(), Cross(), Column()):
        assert advantages(plan, game, sampled, AdvantageSettings())[0] == pytest.approx(effect - 2)
    for plan in (Latin(), Cross(), Column()):
        assert advantages(plan, game, sampled, AdvantageSettings())[1:] == pytest.approx(np.zeros((2, 4)))


CASES = [
    (plan, agents, size)
    for plan in (Aligned(), Pairings(2), Latin(), Cross(), Column(), Removal())
    for agents, size in ((2, 2), (2, 3), (3, 2))
    if not plan.refuse(agents, size)
]


@pytest.mark.parametrize(("plan", "agents", "size"), CASES, ids=lambda value: getattr(value, "name", str(value)))
def test_leave_one_out_is_unbiased_and_the_mean_shrinks(plan: Plan, agents: int, size: int) -> None:
    """Over every group that can be drawn, the gradient is the exact one; own actions in the mean cost 1 / G of it.

    Policies are softmax over two actions: the gradient of agent i is the mean of A_i(g) (e_a - p) over its actions.
    """
    rng = np.random.default_rng(agents * 10 + size)
    game = rng.normal(size=(2,) * agents)
    policies = rng.dirichlet([2.0, 2.0], size=agents)  # (agents, actions)
    exact = np.zeros((agents, 2))
    for joint in itertools.product(range(2), repeat=agents):
        chance = np.prod([policies[i, a] for i, a in enumerate(joint)])
        for i, a in enumerate(joint):
            exact[i] += chance * game[joint] * (np.eye(2)[a] - policies[i])
    for settings, factor in ((LEAVE_ONE_OUT, 1.0), (AdvantageSettings(), (size - 1) / size)):
        found, total = np.zeros((agents, 2)), 0.0
        for drawn in itertools.product(range(2), repeat=agents * size):
            sampled = np.array(drawn).reshape(size, agents)
            chance = np.prod([policies[i, sampled[g, i]] for g in range(size) for i in range(agents)])
            given = advantages(plan, game, sampled, settings)
            for i in range(agents):
                found[i] += chance * np.mean(
                    [given[i, g] * (np.eye(2)[sampled[g, i]] - policies[i]) for g in range(size)], axis=0
                )
            total += chance
        assert total == pytest.approx(1.0)
        assert found == pytest.approx(factor * exact, abs=1e-12)


def test_the_variance_of_the_gradient_is_that_of_the_u_statistic() -> None:
    """Without a baseline: (z1 + z2 + z12) / G aligned, and z1 / G + z2 / G + z12 / G^2 for every combination.

    z are the variances of the parts of h = r(a, b) (e_a - p) that depend on a alone, on b alone, and on both.
    """
    rng = np.random.default_rng(5)
    game, p, q = rng.normal(size=(3, 3)), rng.dirichlet([2, 2, 2]), rng.dirichlet([2, 2, 2])
    h = game[:, :, None] * (np.eye(3) - p)[:, None, :]  # (a, b, 3)
    mean = np.einsum("a,b,abk->k", p, q, h)
    of_a, of_b = np.einsum("b,abk->ak", q, h) - mean, np.einsum("a,abk->bk", p, h) - mean
    both = h - mean - of_a[:, None] - of_b[None]
    z1, z2 = np.einsum("a,ak->", p, of_a**2), np.einsum("b,bk->", q, of_b**2)
    z12 = np.einsum("a,b,abk->", p, q, both**2)
    size, groups = 4, 20000
    a, b = rng.choice(3, (groups, size), p=p), rng.choice(3, (groups, size), p=q)
    for plan, expected in (
        (Aligned(), (z1 + z2 + z12) / size),
        (Pairings(2), (z1 + z2) / size + z12 / (2 * size)),
        (Cross(), (z1 + z2) / size + z12 / size**2),
    ):
        cells = plan.cells(2, size)
        worth = np.stack(
            [plan.compare(cells, game[x[cells[:, 0]], y[cells[:, 1]]], size)[0, 0] for x, y in zip(a, b, strict=True)]
        )
        gradients = np.mean(worth[:, :, None] * (np.eye(3) - p)[a], axis=1)  # (groups, 3)
        # The relative error of a variance from 20,000 draws is about 1 %.
        assert gradients.var(axis=0).sum() == pytest.approx(expected, rel=0.05)
    assert z12 > 0.5 * (z1 + z2)  # or the plans would hardly differ


PARTNERS_CANCEL = ("latin", "cross", "column", "removal")


@pytest.mark.parametrize(
    "plan", [Aligned(), Pairings(2), Latin(), Cross(), Column(), Removal()], ids=lambda plan: plan.name
)
@pytest.mark.parametrize(("agents", "size"), [(2, 4), (3, 4), (3, 6), (4, 5)])
def test_partners_main_effects_cancel_where_the_plan_is_balanced(plan: Plan, agents: int, size: int) -> None:
    rng = np.random.default_rng(1)
    effects = rng.normal(size=(agents, size))
    game = sum(effects[i].reshape([size if k == i else 1 for k in range(agents)]) for i in range(agents)) + np.zeros(
        (size,) * agents
    )
    sampled = np.stack([rng.permutation(size) for _ in range(agents)], axis=1)
    given = advantages(plan, game, sampled, AdvantageSettings())
    own = np.stack([effects[i, sampled[:, i]] - effects[i].mean() for i in range(agents)])
    assert np.allclose(given, own) == (plan.name in PARTNERS_CANCEL)


@pytest.mark.parametrize("plan", [Aligned(), Cross(), Column(), Removal()], ids=lambda plan: plan.name)
def test_renaming_agents_renames_their_credit_and_nothing_else(plan: Plan) -> None:
    rng = np.random.default_rng(2)
    game, sampled = rng.normal(size=(5, 5, 5)), rng.integers(0, 5, (5, 3))
    given = advantages(plan, game, sampled, LEAVE_ONE_OUT)
    for order in itertools.permutations(range(3)):
        other = advantages(plan, np.transpose(game, order), sampled[:, order], LEAVE_ONE_OUT)
        assert other == pytest.approx(given[list(order)])


@pytest.mark.parametrize("plan", [Latin(), Pairings(2)], ids=lambda plan: plan.name)
def test_where_a_plan_is_not_symmetric_its_mean_and_variance_are(plan: Plan) -> None:
    """Which actions of two agents meet depends on their places, but never how good the credit is."""
    game = np.random.default_rng(3).normal(size=(2, 2, 2))
    moments = {}
    for order in ((0, 1, 2), (2, 0, 1), (1, 0, 2)):
        drawn = np.array(list(itertools.product(range(2), repeat=9))).reshape(-1, 3, 3)
        given = np.stack([advantages(plan, np.transpose(game, order), s[:, order], LEAVE_ONE_OUT) for s in drawn])
        back = given[:, np.argsort(order)]  # (groups, agents, G), agents as they were called
        first = drawn[:, 0, :] == 0  # whether agent i's first action is 0
        moments[order] = [
            statistic(back[first[:, i] == what, i, 0])
            for i in range(3)
            for what in (0, 1)
            for statistic in (np.mean, np.var)
        ]
    assert moments[2, 0, 1] == pytest.approx(moments[0, 1, 2])
    assert moments[1, 0, 2] == pytest.approx(moments[0, 1, 2])


@pytest.mark.parametrize("fan_out", [(2, 2), (2, 3), (3, 2), (2, 2, 2)], ids=str)
def test_replay_is_unbiased_for_agents_that_read_each_other(fan_out: tuple[int, ...]) -> None:
    """Over everything that can be drawn; the policy of each agent depends on the actions before it."""
    agents, size = len(fan_out), int(np.prod(fan_out))
    rng = np.random.default_rng(size)
    game = rng.normal(size=(2,) * agents)
    policies = [rng.dirichlet([2.0, 2.0], size=(2,) * place) for place in range(agents)]  # the last axis: the action
    plan = Replay(fan_out)
    exact = [np.zeros_like(policy) for policy in policies]
    for joint in itertools.product(range(2), repeat=agents):
        chance = np.prod([policies[i][joint[: i + 1]] for i in range(agents)])
        for i, a in enumerate(joint):
            exact[i][joint[:i]] += chance * game[joint] * (np.eye(2)[a] - policies[i][joint[:i]])
    nodes = [int(np.prod(fan_out[: i + 1])) for i in range(agents)]  # actions that each agent samples
    drawn = np.array(list(itertools.product(range(2), repeat=sum(nodes))))
    parts = np.split(drawn, np.cumsum(nodes)[:-1], axis=1)
    sampled = np.stack([np.repeat(part, size // part.shape[1], axis=1) for part in parts], axis=-1)  # (draw, g, agent)
    before = [np.zeros(sampled.shape[:2], dtype=int)]  # place of the actions before agent i's
    for i in range(agents):
        before.append(2 * before[i] + sampled[:, :, i])
    chance = np.ones(len(drawn))
    for i, count in enumerate(nodes):
        chance *= policies[i].reshape(-1)[before[i + 1][:, :: size // count]].prod(axis=1)
    cells = plan.cells(agents, size)

    def credited(rewards: Floats) -> Floats:
        table, found = plan.compare(cells, rewards, size), np.empty((agents, size))
        for i, g in itertools.product(range(agents), range(size)):
            known = ~np.isnan(table[i, g])
            found[i, g] = group_advantages(table[i, g][known], LEAVE_ONE_OUT)[int(known[:g].sum())]
        return found

    # Credit is linear in the rewards, so that of every draw follows from that of one reward at a time.
    rewards = game[tuple(np.moveaxis(sampled, -1, 0))]
    given = np.einsum("dk,kig->dig", rewards, np.stack([credited(unit) for unit in np.eye(size)]))
    for draw in rng.choice(len(drawn), 30):
        assert given[draw] == pytest.approx(credited(rewards[draw]))
    found = [np.zeros((2**i, 2)) for i in range(agents)]
    for i in range(agents):
        ahead = np.eye(2)[sampled[:, :, i]] - policies[i].reshape(-1, 2)[before[i]]
        np.add.at(found[i], before[i], chance[:, None, None] * given[:, i, :, None] * ahead / size)
    for i in range(agents):
        assert found[i] == pytest.approx(exact[i].reshape(-1, 2), abs=1e-12), i


def test_a_lost_cell_is_left_out_of_the_means_it_belongs_to() -> None:
    cells = Cross().cells(2, 3)
    rewards = np.arange(9.0)
    rewards[4] = np.nan  # (1, 1)
    table = Cross().compare(cells, rewards, 3)
    assert table[:, 0].tolist() == [[1.0, 4.0, 7.0], [3.0, 4.0, 5.0]]
    rewards[[3, 5]] = np.nan  # the whole row of the first agent's second action
    table = Cross().compare(cells, rewards, 3)
    assert np.isnan(table[0, 0]).tolist() == [False, True, False]
    assert table[1, 0].tolist() == [3.0, 4.0, 5.0]
    held = Column().compare(cells, rewards, 3)
    assert np.isnan(held[0, 1]).tolist() == [False, True, False]  # column of (1, 1), the first agent's actions
    assert np.isnan(held[1, 1]).all()
