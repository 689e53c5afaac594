"""Checks of a reward for meals that need no model: its formula, small policies, and the rules of the table.

`lint` tests the reward alone, on every outcome that a table can have, without playing.  Outcomes are vectors of meals,
with and without a deadlock.  Everything else that the reward reads is set as in the cleanest episode with that outcome:
two forks taken per meal, nothing failed, nothing unparseable; a deadlock comes half way, when every philosopher holds
one fork.  Four questions decide, because the best policy would end with an outcome that answers them wrongly: does the
reward grow until the table has eaten (`growth`), for every seat (`seats`, `sharing`), and does it never pay for a
deadlock (`deadlock`)? The others explain where training may get stuck, which depends on its start.

`search_policies` plays every pair of deterministic policies without memory (one for even, one for odd seats) and finds
the one with the greatest reward.  `search_rules` computes the most meals by dynamic programming *through the step
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

from pipeline_lib.audit.result import DOUBTFUL, UNDONE, UNSEEN, Check, Status, best_policy, form
from pipeline_lib.environments.philosophers.optimum import most_meals
from pipeline_lib.environments.philosophers.rewards import Reward, Summary, summarise
from pipeline_lib.environments.philosophers.runtime import best_meals, lay_table
from pipeline_lib.environments.philosophers.scenarios import Scenario, dpbench, make_graph
from pipeline_lib.environments.philosophers.scripted import all_tables, play, play_teams, script
from pipeline_lib.environments.philosophers.table import Counts, Table, make_table
from pipeline_lib.environments.philosophers.table import step as trained_step

Floats = npt.NDArray[np.float64]
Meals = npt.NDArray[np.int32]

#: All outcomes are enumerated for tables of this size, with up to this many meals each.
PHILOSOPHERS, MOST = 4, 5

#: Outcomes drawn to see what a meal is worth to each seat.
DRAWS = 128

#: Taking a meal from the least fed for the best fed must not be worth more than the first share of a meal (FAIL); the
#: second is doubtful.
CONCENTRATED, UNEVEN = 0.5, 0.1

#: A seat whose meals are worth less than the first share of another's will go hungry (FAIL); the second is doubtful.
NEGLECTED, UNEQUAL = 0.25, 0.75

_EPSILON = 1e-9


def lint(reward: Reward, table: Scenario | None = None, sequential: bool = False) -> list[Check]:
    """Check the reward's value on outcomes of a table.

    Args:
        reward: what is audited.
        table: a training scenario, for the questions that decide; by default DPBench's table of five.
        sequential: one philosopher moves per step.

    Returns:
        ``growth``: FAIL if half of the meals that are possible earn (nearly) all there is to earn, WARN if four fifths
        do; ``seats``: FAIL if the meals of some seat are worth (nearly) nothing beside another's; ``sharing``: FAIL
        if it pays to take meals from the least fed for the best fed; ``deadlock``: FAIL if
        a deadlock pays at equal meals.  These explain, and WARN at most:
        ``first_meal`` if a philosopher's first meal does not raise the reward; ``nothing`` if an outcome without meals
        beats one with meals and without deadlock; ``traps`` if there are outcomes from which no further meal raises
        the reward; ``vacuous`` about terms that pay when nothing happens.
    """
    scenario = dpbench(PHILOSOPHERS)
    meals = np.array(list(itertools.product(range(MOST + 1), repeat=PHILOSOPHERS)), np.int32).T
    meals = meals[:, meals.sum(axis=0) <= best_meals(scenario, sequential=False)[0]]
    free, stuck = outcomes(scenario, meals, False), outcomes(scenario, meals, True)
    values, lost = reward.total(free), reward.total(stuck)
    return [
        _growth(reward, table or dpbench(5), sequential),
        _seats(reward, table or dpbench(5), sequential),
        _sharing(reward, table or dpbench(5), sequential),
        _deadlock(values, lost),
        _first_meal(meals, values),
        _nothing(meals, values, lost),
        _traps(meals, values),
        _vacuous(reward, scenario),
    ]


def outcomes(scenario: Scenario, meals: Meals, deadlocked: bool, sequential: bool = False) -> Summary:
    """Return the summaries of the cleanest episodes with these meals, (N, B)."""
    n, batch = meals.shape
    horizon = np.full(batch, float(scenario.horizon))

    def count(values: npt.ArrayLike = 0) -> Meals:
        return np.broadcast_to(np.asarray(values, np.int32), (batch,))

    counts = dict.fromkeys((field.name for field in dataclasses.fields(Counts)), count())
    counts["taken"] = count(2 * meals.sum(axis=0) + n * deadlocked)
    counts["decisions"] = count(scenario.horizon if sequential else n * scenario.horizon)
    counts["deadlocks"] = count(int(deadlocked))
    return Summary(
        meals=meals,
        deadlocked=np.full(batch, deadlocked),
        deadlock_time=np.full(batch, 0.5 if deadlocked else 1.0),
        time=np.full(batch, 0.5 if deadlocked else 1.0),
        optimum=np.full(batch, float(best_meals(scenario, sequential)[0])),
        horizon=horizon,
        full=horizon if sequential else n * horizon,
        counts=Counts(**counts),
    )


def dealt(philosophers: int, most: int) -> Meals:
    """Return the outcomes of a table that shares 0, 1, ..., ``most`` meals as equally as possible, (N, most + 1)."""
    total = np.arange(most + 1)
    return ((total + philosophers - 1 - np.arange(philosophers)[:, None]) // philosophers).astype(np.int32)


def _growth(reward: Reward, table: Scenario, sequential: bool) -> Check:
    """Check how many of the possible meals, shared as equally as possible, already earn the full reward."""
    n, most = table.philosophers, best_meals(table, sequential)[0]
    values = reward.total(outcomes(table, dealt(n, most), False, sequential))
    gain = float(values.max() - values[0])
    enough = int(np.argmax(values >= values.max() - UNSEEN * gain - _EPSILON))
    numbers = {"meals": enough, "most_meals": most, "nothing": float(values[0]), "greatest": float(values.max())}
    shared = n * (most // n)  # what everybody can have equally often; a reward that asks for equal shares stops here
    if enough >= DOUBTFUL * most or 0 < shared <= enough:
        return Check("growth", Status.PASS, f"The reward grows until {enough} of {most} meals are eaten.", numbers)
    if enough == 0:
        sentence = f"A table at which nobody eats earns {values[0]:.3f}, and no number of meals earns visibly more."
    else:
        sentence = (
            f"{enough} of {most} meals, shared as equally as possible, earn {values[enough]:.3f}; no number of meals "
            f"earns visibly more than that (at most {values.max():.3f})."
        )
    status = Status.FAIL if enough < UNDONE * most else Status.WARN
    return Check("growth", status, sentence, numbers, "add a term that every further meal raises (`meals`).")


def _seats(reward: Reward, table: Scenario, sequential: bool) -> Check:
    """Check how much one more meal of each seat raises the reward, on average over outcomes.

    Outcomes are drawn in all rotations, so that a reward that treats seats alike gives equal averages.
    """
    n, drawn = table.philosophers, _drawn(table, sequential)
    before = reward.total(outcomes(table, drawn, False, sequential))
    worth = np.zeros(n)
    for seat in range(n):
        more = drawn.copy()
        more[seat] += 1
        worth[seat] = (reward.total(outcomes(table, more, False, sequential)) - before).mean()
    least, greatest = int(np.argmin(worth)), int(np.argmax(worth))
    numbers = {"worth": worth.tolist()}
    if worth[greatest] <= _EPSILON:
        return Check("seats", Status.WARN, "On average no seat's meals are worth anything.", numbers)
    if worth[least] >= UNEQUAL * worth[greatest]:
        return Check("seats", Status.PASS, f"A meal is worth {worth[greatest]:.3f}, whoever has it.", numbers)
    return Check(
        "seats",
        Status.FAIL if worth[least] < NEGLECTED * worth[greatest] else Status.WARN,
        f"A meal of philosopher {least} is worth {worth[least]:.3f}, one of philosopher {greatest} "
        f"{worth[greatest]:.3f}: the best policy need not feed everybody.",
        numbers,
        "pay for the meals of all seats alike.",
    )


def _sharing(reward: Reward, table: Scenario, sequential: bool) -> Check:
    """Check how the reward changes if a meal is moved from the least fed seat that has one to the best fed."""
    drawn = _drawn(table, sequential)
    columns = np.arange(drawn.shape[1])
    rich, poor = drawn.argmax(axis=0), np.where(drawn > 0, drawn, np.iinfo(np.int32).max).argmin(axis=0)
    possible = (rich != poor) & (drawn[poor, columns] > 0)
    drawn, rich, poor = drawn[:, possible], rich[possible], poor[possible]
    if not possible.any():
        return Check("sharing", Status.PASS, "Within the horizon nobody can have more meals than others that eat.")
    columns = np.arange(drawn.shape[1])
    moved, more = drawn.copy(), drawn.copy()
    moved[poor, columns] -= 1
    moved[rich, columns] += 1
    more[np.random.default_rng(0).integers(len(drawn), size=len(columns)), columns] += 1
    before = reward.total(outcomes(table, drawn, False, sequential))
    gain = float((reward.total(outcomes(table, moved, False, sequential)) - before).mean())
    meal = float((reward.total(outcomes(table, more, False, sequential)) - before).mean())
    numbers = {"gain": gain, "meal": meal}
    if gain <= max(UNEVEN * meal, _EPSILON):
        return Check("sharing", Status.PASS, "It does not pay to take meals from the least fed.", numbers)
    return Check(
        "sharing",
        Status.FAIL if gain > CONCENTRATED * meal else Status.WARN,
        f"Taking a meal from the least fed for the best fed is worth {gain:.3f}, one more meal {meal:.3f}: the best "
        "policy lets some go hungry.",
        numbers,
        "do not pay more if fewer philosophers get the same meals.",
    )


def _drawn(table: Scenario, sequential: bool) -> Meals:
    """Return outcomes drawn at random, (N, N DRAWS): each in all rotations of the seats."""
    n, most = table.philosophers, best_meals(table, sequential)[0]
    drawn = np.random.default_rng([n, most]).integers(0, most // n + 2, (n, DRAWS), np.int32)
    return np.concatenate([np.roll(drawn, shift, axis=0) for shift in range(n)], axis=1)


def _deadlock(values: Floats, lost: Floats) -> Check:
    gain = float((lost - values).max())
    numbers = {"gain": gain}
    if gain > UNSEEN * float(np.ptp(values)) + _EPSILON:
        sentence = f"A deadlock can raise the reward, by up to {gain:.3f}."
        return Check("deadlock", Status.FAIL, sentence, numbers, "never pay more at equal meals for a deadlock.")
    if gain > -_EPSILON:
        sentence = "A deadlock costs the meals that it prevents, and with some outcomes nothing beyond them."
        return Check("deadlock", Status.PASS, sentence, numbers)
    sentence = f"A deadlock half-way always costs something, at least {-gain:.3f}."
    return Check("deadlock", Status.PASS, sentence, numbers)


def _first_meal(meals: Meals, values: Floats) -> Check:
    zero = values[meals.sum(axis=0) == 0][0]
    step = float((values[meals.sum(axis=0) == 1] - zero).min())
    one_only = np.flatnonzero((meals[1:] == 0).all(axis=0) & (values > zero + _EPSILON))
    equal = np.flatnonzero((meals == meals[0]).all(axis=0) & (values > zero + _EPSILON))
    numbers = {
        "change": step,
        "meals_of_one_to_beat_nothing": int(meals[0, one_only].min()) if len(one_only) else None,
        "meals_each_to_beat_nothing": int(meals[0, equal].min()) if len(equal) else None,
    }
    if step < -_EPSILON:
        sentence = f"The first meal costs {-step:.3f}: where nobody eats, every step towards eating is punished."
        return Check("first_meal", Status.WARN, sentence, numbers)
    if step <= _EPSILON:
        sentence = "The first meal is worth nothing, so there is no reason to start eating."
        return Check("first_meal", Status.WARN, sentence, numbers)
    return Check("first_meal", Status.PASS, f"The first meal is worth {step:.3f}.", numbers)


def _nothing(meals: Meals, values: Floats, lost: Floats) -> Check:
    zero = meals.sum(axis=0) == 0
    best = float(max(values[zero].max(), lost[zero].max()))
    beaten = float((values[~zero] < best - _EPSILON).mean())
    numbers = {"best_without_meals": best, "share_of_outcomes_beaten": beaten, "greatest": float(values.max())}
    if beaten > 0:
        top = (
            "the most any outcome earns"
            if best >= values.max() - _EPSILON
            else f"at most {values.max():.3f} can be earned"
        )
        return Check(
            "nothing",
            Status.WARN,
            f"A table at which nobody eats earns {best:.3f} ({top}), more than {beaten:.0%} of the outcomes with meals "
            "and without deadlock.",
            numbers,
        )
    return Check("nothing", Status.PASS, f"Nothing beats eating: without meals at most {best:.3f} is earned.", numbers)


def _traps(meals: Meals, values: Floats) -> Check:
    value_of = {tuple(column): value for column, value in zip(meals.T.tolist(), values.tolist(), strict=True)}
    trapped, looked_at = 0, 0
    for column, value in value_of.items():
        further = [value_of.get((*column[:i], column[i] + 1, *column[i + 1 :])) for i in range(len(column))]
        reachable = [v for v in further if v is not None]
        if not reachable:
            continue
        looked_at += 1
        trapped += max(reachable) <= value + _EPSILON
    share = trapped / looked_at
    if trapped:
        return Check(
            "traps",
            Status.WARN,
            f"From {share:.1%} of the outcomes no single further meal raises the reward.",
            {"share": share},
        )
    return Check("traps", Status.PASS, "From every outcome some further meal raises the reward.", {"share": 0.0})


def _vacuous(reward: Reward, scenario: Scenario) -> Check:
    nothing = outcomes(scenario, np.zeros((scenario.philosophers, 1), np.int32), False)
    paid = {name: float(values[0]) for name, values in reward.terms(nothing).items() if values[0] > _EPSILON}
    if paid:
        names = ", ".join(f"{name} ({value:.2f})" for name, value in paid.items())
        return Check("vacuous", Status.WARN, f"Terms that pay when nothing happens: {names}.", {"terms": paid})
    return Check("vacuous", Status.PASS, "No term pays when nothing happens.", {"terms": {}})


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
