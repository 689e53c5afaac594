"""The reward looked at by itself, on every outcome a table can have, without playing.

Outcomes are vectors of meals, with and without a deadlock.  What the reward reads beyond that is set as in the
cleanest episode with that outcome: two forks taken per meal, nothing failed, nothing unparseable; a deadlock comes
half-way, with one fork in every hand.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import numpy.typing as npt

from pipeline_lib.audit.result import Check, Status
from pipeline_lib.environments.philosophers.rewards import Reward
from pipeline_lib.environments.philosophers.state import best_meals
from pipeline_lib.environments.philosophers.summary import Summary
from pipeline_lib.environments.philosophers.table import Counts
from pipeline_lib.problems.scenarios import Scenario, dpbench

#: Outcomes are enumerated for tables of this size, with up to this many meals each.
PHILOSOPHERS, MOST = 4, 5

_EPSILON = 1e-9


def lint(reward: Reward) -> list[Check]:
    """Check the reward's value on all outcomes of a table of four on a ring.

    Returns:
        ``first_meal``: FAIL if somebody's first meal lowers the reward, WARN if it does not raise it;
        ``nothing``: FAIL if an outcome without meals beats one with meals and without deadlock;
        ``traps``: WARN if there are outcomes from which no further meal raises the reward;
        ``deadlock``: FAIL if a deadlock pays at equal meals, WARN if it costs nothing somewhere;
        ``vacuous``: WARN about terms that pay when nothing happens.
    """
    scenario = dpbench(PHILOSOPHERS)
    meals = np.array(list(itertools.product(range(MOST + 1), repeat=PHILOSOPHERS)), np.int32).T
    meals = meals[:, meals.sum(axis=0) <= best_meals(scenario, sequential=False)[0]]
    free, stuck = outcomes(scenario, meals, False), outcomes(scenario, meals, True)
    values, lost = reward.total(free), reward.total(stuck)
    return [
        _first_meal(meals, values),
        _nothing(meals, values, lost),
        _traps(meals, values),
        _deadlock(values, lost),
        _vacuous(reward, scenario),
    ]


def outcomes(scenario: Scenario, meals: npt.NDArray[np.int32], deadlocked: bool) -> Summary:
    """Return the summaries of the cleanest episodes with these meals, (N, B)."""
    n, batch = meals.shape
    horizon = np.full(batch, float(scenario.horizon))

    def count(values: npt.ArrayLike = 0) -> npt.NDArray[np.int32]:
        return np.broadcast_to(np.asarray(values, np.int32), (batch,))

    counts = dict.fromkeys((field.name for field in dataclasses.fields(Counts)), count())
    counts["taken"] = count(2 * meals.sum(axis=0) + n * deadlocked)
    counts["decisions"] = count(n * scenario.horizon)
    counts["deadlocks"] = count(int(deadlocked))
    return Summary(
        meals=meals,
        deadlocked=np.full(batch, deadlocked),
        deadlock_time=np.full(batch, 0.5 if deadlocked else 1.0),
        time=np.full(batch, 0.5 if deadlocked else 1.0),
        optimum=np.full(batch, float(best_meals(scenario, sequential=False)[0])),
        horizon=horizon,
        full=n * horizon,
        counts=Counts(**counts),
    )


def _first_meal(meals: npt.NDArray[np.int32], values: npt.NDArray[np.float64]) -> Check:
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
        return Check(
            "first_meal",
            Status.FAIL,
            f"The first meal costs {-step:.3f}: where nobody eats, every step towards eating is punished.",
            numbers,
        )
    if step <= _EPSILON:
        return Check(
            "first_meal", Status.WARN, "The first meal is worth nothing: a timid table has no reason to eat.", numbers
        )
    return Check("first_meal", Status.PASS, f"The first meal is worth {step:.3f}.", numbers)


def _nothing(meals: npt.NDArray[np.int32], values: npt.NDArray[np.float64], lost: npt.NDArray[np.float64]) -> Check:
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
            Status.FAIL,
            f"A table at which nobody eats earns {best:.3f} ({top}), more than {beaten:.0%} of the outcomes with meals "
            "and without deadlock.",
            numbers,
        )
    return Check("nothing", Status.PASS, f"Nothing beats eating: without meals at most {best:.3f} is earned.", numbers)


def _traps(meals: npt.NDArray[np.int32], values: npt.NDArray[np.float64]) -> Check:
    known = {tuple(column): value for column, value in zip(meals.T.tolist(), values.tolist(), strict=True)}
    trapped, looked_at = 0, 0
    for column, value in known.items():
        further = [known.get((*column[:i], column[i] + 1, *column[i + 1 :])) for i in range(len(column))]
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


def _deadlock(values: npt.NDArray[np.float64], lost: npt.NDArray[np.float64]) -> Check:
    gain = float((lost - values).max())
    if gain > _EPSILON:
        return Check("deadlock", Status.FAIL, f"A deadlock can raise the reward, by up to {gain:.3f}.", {"gain": gain})
    if gain > -_EPSILON:
        return Check("deadlock", Status.WARN, "With some meals a deadlock half-way costs nothing.", {"gain": gain})
    return Check(
        "deadlock", Status.PASS, f"A deadlock half-way always costs something, at least {-gain:.3f}.", {"gain": gain}
    )


def _vacuous(reward: Reward, scenario: Scenario) -> Check:
    nothing = outcomes(scenario, np.zeros((scenario.philosophers, 1), np.int32), False)
    paid = {name: float(values[0]) for name, values in reward.terms(nothing).items() if values[0] > _EPSILON}
    if paid:
        names = ", ".join(f"{name} ({value:.2f})" for name, value in paid.items())
        return Check("vacuous", Status.WARN, f"Terms that pay when nothing happens: {names}.", {"terms": paid})
    return Check("vacuous", Status.PASS, "No term pays when nothing happens.", {"terms": {}})
