"""Two exhaustive searches: over small policies for the greatest reward, and over the rules for impossible meals.

The policy search plays every pair of deterministic policies without memory (one for even, one for odd seats) and finds
the one with the greatest reward.  The rule search computes the most meals by dynamic programming *through the step
function that training uses* and compares it with the optimum of the rules in `optimum`.  A difference is a bug of the
environment that training would find and exploit.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from pipeline_lib.audit.result import Check, Status, best_policy, form
from pipeline_lib.environments.philosophers.optimum import most_meals
from pipeline_lib.environments.philosophers.rewards import Reward, Summary, summarise
from pipeline_lib.environments.philosophers.runtime import best_meals, lay_table
from pipeline_lib.environments.philosophers.scenarios import dpbench, make_graph
from pipeline_lib.environments.philosophers.scripted import all_tables, play, play_teams, script
from pipeline_lib.environments.philosophers.table import Table, make_table
from pipeline_lib.environments.philosophers.table import step as trained_step

Step = Callable[[Table, npt.NDArray[np.int8]], Table]

#: Tables of the policy search and of the rule search.
POLICY_SIZES = (3, 5)
RULE_SIZES = (3, 4, 5)

#: Scripted policies that are played in addition to the pairs.
_SCRIPTS = ("optimal", "time_slots", "hierarchy")

#: Teams played side by side.
_CHUNK = 432 * 48


def search_policies(reward: Reward, sequential: bool) -> list[Check]:
    """Find the greatest reward among all pairs of memoryless policies and the scripted ones.

    Returns:
        ``policies_N`` per table size: FAIL if a policy that eats less than half of what another eats earns as much as
        any, see `result.best_policy`, or if a policy that never eats earns over two thirds of what can be earned beyond
        waiting; WARN if some pair without a meal is rewarded more than most of those that eat.
    """
    checks = []
    for n in POLICY_SIZES:
        played, waiting = _played(n, sequential)
        rewards = np.concatenate([reward.total(summary) for summary in played])
        meals = np.concatenate([summary.meals.sum(axis=0) for summary in played])
        stuck = np.concatenate([summary.deadlocked for summary in played])
        checks.append(_judge(n, rewards, meals, stuck, float(reward.total(waiting)[0])))
    return checks


@lru_cache(maxsize=4)
def _played(philosophers: int, sequential: bool) -> tuple[list[Summary], Summary]:
    """Return the outcomes of all pairs, then of the scripts, and of a table that waits; independent of the reward."""
    scenario = dpbench(philosophers)
    optimum = best_meals(scenario, sequential)[0]
    start = lay_table(scenario, sequential)
    played = []
    count = len(all_tables())
    teams = np.arange(count * count)
    even = (np.arange(philosophers) % 2 == 0)[:, None]
    for low in range(0, len(teams), _CHUNK):
        part = teams[low : low + _CHUNK]
        table = start.select(np.zeros(len(part), np.intp))
        played.append(summarise(play_teams(table, np.where(even, part // count, part % count)), optimum))

    def scripted(name: str) -> Summary:
        return summarise(play(start, script(name), np.random.default_rng(philosophers)), optimum)

    # The scripts know the clock or the whole table, which no memoryless policy does.
    return [*played, *map(scripted, _SCRIPTS)], scripted("wait")


def _judge(
    n: int,
    rewards: npt.NDArray[np.float64],
    meals: npt.NDArray[np.int64],
    stuck: npt.NDArray[np.bool_],
    nothing: float,
) -> Check:
    policy = best_policy(rewards, meals)
    likes, most, count = policy.index, int(policy.most), len(all_tables())
    none = rewards[meals == 0]
    eating = rewards[(meals > 0) & ~stuck]
    beaten = float((eating < none.max() - 1e-9).mean()) if len(none) and len(eating) else 0.0
    gain = policy.best - nothing
    unearned = float(none.max() - nothing) / gain if len(none) and gain > 1e-9 else 0.0
    numbers = {
        "waiting": nothing,
        "share_without_meals": unearned,
        "best_reward": policy.best,
        "reward": policy.reward,
        "meals": int(meals[likes]),
        "most_meals": most,
        "best_reward_without_meals": float(none.max()) if len(none) else None,
        "share_of_eating_pairs_beaten": beaten,
        "policy": list(divmod(likes, count)) if likes < count**2 else _SCRIPTS[likes - count**2],
    }
    name = f"policies_{n}"
    who = f"pair {likes // count}/{likes % count} of memoryless policies" if likes < count**2 else "scripted policy"
    if policy.status is not Status.PASS:
        return Check(
            name,
            policy.status,
            f"For {n} philosophers the {who} eats {meals[likes]} meals and earns {rewards[likes]:.3f}, as much as any "
            f"(at most {policy.best:.3f}); another policy eats {most}.",
            numbers,
            "make every further meal worth more than what this policy is paid for instead.",
        )
    if form(unearned) is not Status.PASS:
        return Check(
            name,
            form(unearned),
            f"For {n} philosophers a pair of memoryless policies that never eats earns {none.max():.3f}, "
            f"{unearned:.0%} of what can be earned beyond waiting ({policy.best:.3f}, waiting {nothing:.3f}).",
            numbers,
            "make meals worth more than all that can be earned without one.",
        )
    return Check(
        name,
        Status.WARN if beaten > 0.5 else Status.PASS,
        f"For {n} philosophers no policy without memory that eats less than {meals[likes]} of at most {most} meals "
        f"earns as much as the best; a pair without meals beats {beaten:.0%} of those that eat.",
        numbers,
    )


def search_rules(step: Step = trained_step, horizon: int = 30) -> list[Check]:
    """Compare the most meals that the step function allows with the most that the rules allow.

    Args:
        step: the step function of training.
        horizon: steps of an episode.

    Returns:
        ``rules_N`` per table size: FAIL if they differ.
    """
    checks = []
    for n in RULE_SIZES:
        reached, allowed = reachable_meals(n, horizon, step), most_meals(make_graph("ring", n), horizon)[0]
        numbers = {"found": reached, "allowed": allowed}
        if reached != allowed:
            relation = "serves" if reached > allowed else "only serves"
            sentence = (
                f"The environment {relation} {reached} meals to {n} philosophers in {horizon} steps, the rules allow "
                f"{allowed}: training would find out."
            )
            checks.append(Check(f"rules_{n}", Status.FAIL, sentence, numbers))
        else:
            sentence = f"Nobody can get more than the {allowed} meals that the rules allow {n} philosophers."
            checks.append(Check(f"rules_{n}", Status.PASS, sentence, numbers))
    return checks


@lru_cache(maxsize=8)
def reachable_meals(philosophers: int, horizon: int, step: Step) -> int:
    """Return the most meals on a ring, by dynamic programming through ``step`` over all joint actions."""
    n = philosophers
    joint = np.array(list(itertools.product(range(4), repeat=n)), np.int8).T  # (N, J)
    start = make_table(make_graph("ring", n), [list(range(n))], horizon)
    numbers: dict[bytes, int] = {_code(start)[0]: 0}
    tables = [start]
    follows: list[npt.NDArray[np.intp]] = []
    gains: list[npt.NDArray[np.int32]] = []
    over: list[bool] = [False]
    place = 0
    while place < len(tables):
        before = tables[place].select(np.zeros(joint.shape[1], np.intp))
        after = step(before, joint)
        codes = _code(after)
        targets = np.empty(len(codes), np.intp)
        for column, code in enumerate(codes):
            if code not in numbers:
                numbers[code] = len(tables)
                tables.append(_anew(start, after, column))
                over.append(bool(after.deadlocked[column]))
            targets[column] = numbers[code]
        reached = np.unique(targets)
        gained = (after.meals - before.meals).sum(axis=0)
        # Different joint actions may lead to one configuration with different meals: keep the best.
        best = np.full(len(tables), -1, np.int32)
        np.maximum.at(best, targets, gained.astype(np.int32))
        follows.append(reached)
        gains.append(best[reached])
        place += 1
    values = np.zeros(len(tables), np.int32)
    for _ in range(horizon):
        values = np.array(
            [0 if over[i] else int((gains[i] + values[follows[i]]).max()) for i in range(len(tables))], np.int32
        )
    return int(values[0])


def _code(table: Table) -> list[bytes]:
    stacked = np.concatenate([table.left, table.right, table.eating > 0, table.deadlocked[None]]).astype(np.uint8)
    return [column.tobytes() for column in np.ascontiguousarray(stacked.T)]


def _anew(start: Table, table: Table, column: int) -> Table:
    """Return one configuration as a table at time 0."""
    one = table.select([column])
    return dataclasses.replace(start, left=one.left, right=one.right, eating=one.eating)
