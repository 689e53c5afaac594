"""The audit of a philosophers' reward: scripted policies, lint, searches, training in miniature, and the base policy.

In the miniature, tables of action probabilities learn from the reward, from several starts, in seconds.  The policy is
a softmax over the four actions, and over writing what cannot be read, for each of the nine things a philosopher can see
of its forks; each seat has its own, as agents that know their number can.  It learns as teams do:  groups of episodes
on one scenario, return-to-go less the group's mean at the same step.

Two questions, one for each claim of the audit:

* which policy has the highest reward?  Learners of the reward and learners of the meals themselves have the same starts
  (uniform, and the result of the latter); if the former end with far fewer meals and the same reward, the best policy
  under the reward does not do the task (`search`);
* where does training lead?  A learner that starts with the base policy's action frequencies must end with more meals
  than at its start (`dry_run_base`).  Artificial starts, uniform, timid (it mostly waits) and grabby (it mostly takes
  its left fork), show other parts of the landscape; they replace the base policy if there is none.

This does not predict a language model; it shows what its training would do to a policy this small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_lib.audit.examiner import Examiner, Progress
from pipeline_lib.audit.result import DOUBTFUL, UNDONE, Check, Rung, Status, bounded, compare, make_rung
from pipeline_lib.environment_api.environment import Outcome
from pipeline_lib.environments.philosophers.checks import lint, search_policies, search_rules
from pipeline_lib.environments.philosophers.rewards import Reward, metrics, summarise
from pipeline_lib.environments.philosophers.runtime import PhilosophersEnvironment, State
from pipeline_lib.environments.philosophers.scenarios import Scenario
from pipeline_lib.environments.philosophers.scripted import CLASSES, SCRIPTS, Batch, lay_batches, scripted_records, seen
from pipeline_lib.environments.philosophers.settings import PhilosophersSettings
from pipeline_lib.environments.philosophers.table import INVALID, LEFT, WAIT, step
from pipeline_lib.environments.philosophers.text import read_reply
from pipeline_lib.evaluation.episodes import EpisodeRecord

Floats = npt.NDArray[np.float64]

#: Actions of a learner: the four of the table, and text that names none.
CHOICES = INVALID + 1

#: Group size, and number of updates.
GROUP, UPDATES = 32, 200

#: Learning rate of plain gradient ascent on the logits.
RATE = 1.0

#: A start has collapsed when it ends with fewer meals than this share of the optimum.
COLLAPSE = 0.05

#: Learners per start: of the base policy's habits, of the search (for each of the two rewards), of the artificial ones.
LEARNERS = {"base": 4, "uniform": 3, "meals": 3, "timid": 2, "grabby": 2}

#: Share of the updates, at the end, over which results are averaged.
_WINDOW = 0.15


@dataclass(frozen=True, slots=True)
class Course:
    """The learning curves of one start; arrays of shape (learners,)."""

    #: Means of the first updates by quantity: ``meals``, ``meals_share``, ``deadlock``, ``reward``, ``flat``.
    first: Mapping[str, Floats]
    last: Mapping[str, Floats]  #: means of the last updates
    error: Floats  #: standard errors of the last updates' rewards


def starts(philosophers: int) -> dict[str, Floats]:
    """Return the logits, (N, 9, 5), of the artificial starts."""
    uniform = np.zeros((philosophers, CLASSES, CHOICES))
    uniform[..., INVALID] = np.log(0.02)  # a base that writes nothing readable has nothing to start from
    timid, grabby = uniform.copy(), uniform.copy()
    timid[..., WAIT] = np.log(0.95 / (0.05 / 3))
    grabby[..., LEFT] = np.log(0.98 / (0.02 / 3))
    return {"uniform": uniform, "timid": timid, "grabby": grabby}


def usual_batch(scenarios: Sequence[Scenario], sequential: bool) -> Batch:
    """Return the most frequent kind of table among the scenarios."""
    return max(lay_batches(scenarios, sequential), key=lambda batch: len(batch.scenarios))


def dry_run(
    reward: Reward,
    scenarios: Sequence[Scenario],
    sequential: bool,
    seed: int,
    habits: Floats | None = None,
    best_script: float = -np.inf,
    updates: int = UPDATES,
) -> list[Check]:
    """Train the miniature on the most frequent kind of table.

    Args:
        reward: the audited reward.
        scenarios: training scenarios.
        sequential: one philosopher moves per step.
        seed: seed of all draws.
        habits: the base policy's logits, (N, 9, 5), for the most frequent table; None if they are unknown.
        best_script: the greatest reward of a scripted policy, which the learners' best must reach to be the best.
        updates: gradient steps.

    Returns:
        ``search``: FAIL if the learners of the reward earn as much as anything known and eat less than half of what the
        learners of the meals eat.  ``dry_run_base``: FAIL if training from the base policy's habits loses the meals or
        never finds any; without habits ``direction``: FAIL if most artificial starts learn not to eat, which a start
        that learns nothing at all does not count as.  ``dry_run_NAME`` per artificial start: WARN at most.
    """
    batch = usual_batch(scenarios, sequential)
    begin = starts(batch.table.graph.philosophers)
    begin["meals"] = begin["uniform"]
    if habits is not None:
        begin["base"] = habits
    names = [name for name in begin for _ in range(LEARNERS[name])]
    logits = np.stack([begin[name] for name in names])  # (K, N, 9, 5)
    of_meals = np.array([name == "meals" for name in names])
    rng = np.random.default_rng([seed, 20])
    history: dict[str, list[Floats]] = {}
    for _ in range(updates):
        logits, measured = learn(logits, batch, reward, rng, of_meals)
        for key, values in measured.items():
            history.setdefault(key, []).append(values)
    window = max(2, int(_WINDOW * updates))
    taken = {key: np.array(values) for key, values in history.items()}  # (updates, K)
    courses = {}
    for name in begin:
        columns = [i for i, other in enumerate(names) if other == name]
        late = {key: values[-window:, columns] for key, values in taken.items()}
        courses[name] = Course(
            {key: values[:3, columns].mean(axis=0) for key, values in taken.items()},
            {key: values.mean(axis=0) for key, values in late.items()},
            late["reward"].std(axis=0, ddof=1) / np.sqrt(window),
        )
    lost = {name: _judge(name, courses[name]) for name in begin if name != "meals"}
    checks = [_search(courses["uniform"], courses["meals"], best_script)]
    checks.append(lost.pop("base") if habits is not None else _direction(lost))
    return checks + [_explaining(check) for check in lost.values()]


def learn(
    logits: Floats, batch: Batch, reward: Reward, rng: np.random.Generator, of_meals: npt.NDArray[np.bool_]
) -> tuple[Floats, dict[str, Floats]]:
    """Do one update of K learners.

    Args:
        logits: (K, N, 9, 5).
        batch: the tables to draw one from.
        reward: the audited reward.
        rng: source of all draws.
        of_meals: (K,) booleans: learners that learn from meals (relative to the optimum) instead.

    Returns:
        The new logits, and the means of the groups, (K,) each; ``reward`` is the audited one for all learners.
    """
    kinds, seats = logits.shape[:2]
    column = int(rng.integers(len(batch.scenarios)))
    table = batch.table.select(np.full(kinds * GROUP, column))
    optimum = batch.optimum[column]
    owner = np.repeat(np.arange(kinds), GROUP)
    other = of_meals[owner]
    chances = np.exp(logits - logits.max(axis=-1, keepdims=True))
    chances /= chances.sum(axis=-1, keepdims=True)
    cumulative = chances.cumsum(axis=-1)[..., :-1].reshape(-1, CHOICES - 1)
    row = (owner[None, :] * seats + np.arange(seats)[:, None]) * CLASSES  # (N, K G)
    earned = np.zeros(kinds * GROUP)
    rewards, choices, acted = [], [], []
    while not table.done.all():
        places = row + seen(table)
        draw = rng.random(places.shape)
        action = (draw[..., None] > cumulative[places]).sum(axis=-1).astype(np.int8)
        live = ~table.done & (table.eating == 0)
        if table.sequential:
            live = live & (np.arange(seats)[:, None] == table.mover())
        table = step(table, action)
        summary = summarise(table, optimum)
        total = np.where(other, summary.share, reward.total(summary))
        rewards.append(total - earned)
        earned = total
        choices.append(places * CHOICES + action)
        acted.append(live)
    returns = np.cumsum(np.array(rewards)[::-1], axis=0)[::-1]  # (T, K G), return-to-go
    grouped = returns.reshape(len(returns), kinds, GROUP)
    spread = grouped[0].std(axis=-1)[:, None]  # of whole episodes: the size of the reward must not matter
    scale = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 1e-9)
    advantages = ((grouped - grouped.mean(axis=-1, keepdims=True)) * scale).reshape(returns.shape)
    weights = np.array(acted) * advantages[:, None, :]  # (T, N, K G)
    chosen = np.bincount(np.array(choices).ravel(), weights.ravel(), logits.size).reshape(logits.shape)
    gradient = chosen - chances * chosen.sum(axis=-1, keepdims=True)
    summary = summarise(table, optimum)
    measured = metrics(summary)
    means = {
        key: measured[key].reshape(kinds, GROUP).mean(axis=-1)
        for key in ("meals", "meals_share", "deadlock", "wait_share")
    }
    means["reward"] = reward.total(summary).reshape(kinds, GROUP).mean(axis=-1)
    means["flat"] = (np.ptp(earned.reshape(kinds, GROUP), axis=-1) < 1e-9).astype(np.float64)
    return logits + RATE * gradient / GROUP, means


def _search(rewarded: Course, told: Course, best_script: float) -> Check:
    """Compare the learners of the reward with the learners of the meals, by reward and meals."""
    ours, theirs = int(np.argmax(rewarded.last["reward"])), int(np.argmax(told.last["meals"]))
    meals, possible = float(rewarded.last["meals"][ours]), float(told.last["meals"][theirs])
    earns, would = float(rewarded.last["reward"][ours]), float(told.last["reward"][theirs])
    noise = 2 * float(np.hypot(rewarded.error[ours], told.error[theirs]))
    numbers = {"meals": meals, "reward": earns, "meals_of_others": possible, "reward_of_others": would}
    story = (
        f"A miniature trained on this reward eats {meals:.1f} meals and earns {earns:.3f}; one trained on meals alone "
        f"eats {possible:.1f} and would earn {would:.3f}"
    )
    if possible <= 0 or meals >= DOUBTFUL * possible:
        return Check("search", Status.PASS, f"{story}.", numbers)
    if earns < max(would, best_script) - noise:
        return Check("search", Status.WARN, f"{story}: training gets stuck in a local optimum.", numbers)
    return Check(
        "search",
        Status.FAIL if meals < UNDONE * possible else Status.WARN,
        f"{story}: the best policy under this reward leaves out the task.",
        numbers,
        "make meals worth more than what the first miniature does instead.",
    )


def _judge(name: str, course: Course) -> Check:
    """Return whether training loses the meals from one start; FAIL if most learners do, beyond their noise."""
    first = {key: float(values.mean()) for key, values in course.first.items()}
    last = {key: float(values.mean()) for key, values in course.last.items()}
    numbers = {f"{key}_before": value for key, value in first.items()}
    numbers |= {f"{key}_after": value for key, value in last.items()}
    learners = len(course.last["meals"])
    collapsed = int((course.last["meals_share"] < COLLAPSE).sum())
    change = course.last["meals"] - DOUBTFUL * course.first["meals"]
    error = float(change.std(ddof=1) / np.sqrt(learners)) if learners > 1 else 0.0
    numbers |= {"pupils": learners, "collapsed": collapsed}
    start = f"the {name} policy's habits" if name == "base" else f"a {name} start"
    story = (
        f"From {start} the miniature goes from {first['meals']:.1f} to {last['meals']:.1f} meals "
        f"(deadlock {last['deadlock']:.0%}, reward {first['reward']:.3f} to {last['reward']:.3f}; {learners} learners)"
    )
    mend = "start from a base that does some of the task, or make the reward rise with every step towards it."
    why = ""
    if 2 * collapsed > learners:
        why = "its groups have no variance of reward" if first["flat"] > 0.5 else "it learned not to eat"
    elif change.mean() + 2 * error < 0:
        why = "it lost meals by learning"
    if why:
        return Check(f"dry_run_{name}", Status.FAIL, f"{story}: {why}.", numbers, mend)
    doubtful = collapsed or change.mean() < 0
    return Check(f"dry_run_{name}", Status.WARN if doubtful else Status.PASS, f"{story}.", numbers)


def _direction(judged: Mapping[str, Check]) -> Check:
    """Judge the direction of training by the artificial starts, without a base policy."""
    lost = [check for check in judged.values() if check.status is Status.FAIL]
    learned = [check for check in lost if check.numbers["flat_before"] <= 0.5]
    numbers = {"starts": len(judged), "lost": len(lost), "learned_not_to_eat": len(learned)}
    if not lost:
        return Check("direction", Status.PASS, f"Training finds the meals from all {len(judged)} starts.", numbers)
    if 2 * len(learned) > len(judged):
        sentence = (
            f"The base policy was not tested, and from most starts training unlearns to eat. {learned[0].sentence}"
        )
        mend = "make the reward rise with every step towards a meal, and audit it with the base policy."
        return Check("direction", Status.FAIL, sentence, numbers, mend)
    sentence = f"The base policy was not tested; training finds no meals from {len(lost)} of {len(judged)} starts."
    return Check("direction", Status.WARN, sentence, numbers)


def _explaining(check: Check) -> Check:
    """Return a check of an artificial start as what it is: an explanation, not a reason to refuse."""
    status = Status.WARN if check.status is Status.FAIL else check.status
    return Check(check.name, status, check.sentence, check.numbers)


#: The metric of the task, and its name in sentences.
WANTED = ("meals_share", "meals relative to the optimum")

#: Policies that coordinate: the reward must pay for most of them.
WORKING = ("polite_random", "hierarchy", "time_slots", "optimal")

#: Policies that never try, besides those that turn out not to eat.
IDLE = ("wait", "release", "unparseable")

#: Episodes of policies that have chance in them.
RANDOM_EPISODES = 256


def philosophers_ladder(
    reward: Reward, scenarios: Sequence[Scenario], sequential: bool, deadlock_ends: bool, seed: int
) -> tuple[list[Rung], list[Check]]:
    """Play every scripted policy that fits on the scenarios.

    Returns:
        The rungs, best reward first, and the checks; ``random`` warns if doing nothing earns what random play does,
        which is not wrong where random play mostly ends in deadlock.
    """
    rungs, earned = [], []
    for name, script in SCRIPTS.items():
        samples = -(-RANDOM_EPISODES // len(scenarios)) if "random" in name else 1
        try:
            records = scripted_records(script, scenarios, reward, samples, seed, sequential, deadlock_ends)
        except ValueError:
            continue  # the script is not made for one of these tables
        rungs.append(_rung(name, records))
        earned += [float(record.reward or 0.0) for record in records]
    checks = [bounded(earned, reward.bounds), *compare(rungs, WANTED[1])]
    by_name = {rung.name: rung for rung in rungs}
    wait, chance = by_name["wait"].reward, by_name["random"].reward
    status, sentence = Status.PASS, f"Random play earns {chance:.3f}, more than 'wait' ({wait:.3f})."
    if wait >= chance:
        status, sentence = Status.WARN, f"'wait' earns {wait:.3f}, no less than random play ({chance:.3f})."
    checks.append(Check("random", status, sentence, {"wait": wait, "random": chance}))
    return sorted(rungs, key=lambda r: -r.reward), checks


def _rung(name: str, records: Sequence[EpisodeRecord]) -> Rung:
    outcomes = [record.metrics[WANTED[0]] for record in records]
    eats = sum(outcomes) / len(outcomes) > 0.01
    role = "degenerate" if name in IDLE or not eats else "working" if name in WORKING else "other"
    return make_rung(
        name,
        role,
        [float(record.reward or 0.0) for record in records],
        outcomes,
        [record.terms for record in records],
        [record.metrics for record in records],
    )


def audit_philosophers(
    environment: PhilosophersEnvironment,
    scenarios: Sequence[Scenario],
    seed: int,
    habits: Floats | None = None,
    progress: Progress = lambda done, total, text: None,
) -> tuple[list[Rung], list[Check]]:
    """Run every check that needs no model.

    Args:
        environment: the audited environment.
        scenarios: training scenarios.
        seed: seed of all draws.
        habits: the base policy's for the most frequent kind of table, see `Habits`; None if it was not looked at.
        progress: called after each piece of work.

    Returns:
        The ladder, best reward first, and the checks.
    """
    reward, settings = environment.reward, environment.settings
    sequential = settings.mode == "sequential"
    progress(0, 5, "scripted policies")
    rungs, checks = philosophers_ladder(reward, scenarios, sequential, settings.deadlock_ends, seed)
    progress(1, 5, "scripted policies")
    checks += lint(reward, usual_batch(scenarios, sequential).scenarios[0], sequential)
    progress(2, 5, "outcomes of the reward")
    checks += search_policies(reward, sequential)
    progress(3, 5, "memoryless policies")
    checks += search_rules()
    progress(4, 5, "rules of the table")
    checks += dry_run(reward, scenarios, sequential, seed, habits, max(rung.reward for rung in rungs))
    progress(5, 5, "training in miniature")
    return rungs, checks


class PhilosophersExaminer(Examiner):
    """Plays scripted policies, searches all small ones, and trains in miniature from the base policy's habits."""

    wanted, words = WANTED
    idle = ("wait_share", "invalid_share")

    def __init__(self) -> None:
        self._habits: Habits | None = None

    def watched(self, environment: PhilosophersEnvironment, problems: Sequence[Scenario]) -> Habits:
        self._habits = Habits(environment.settings)
        return self._habits

    def examine(
        self, environment: PhilosophersEnvironment, problems: Sequence[Scenario], seed: int, progress: Progress
    ) -> tuple[list[Rung], list[Check]]:
        habits = None
        if self._habits is not None:
            usual = usual_batch(problems, environment.settings.mode == "sequential")
            habits = self._habits.logits(usual.table.graph.philosophers)
        return audit_philosophers(environment, problems, seed, habits, progress)


class Habits(PhilosophersEnvironment):
    """Counts the players' actions by what the philosopher saw of its forks."""

    def __init__(self, settings: PhilosophersSettings) -> None:
        super().__init__(settings)
        self._counts: Counter[tuple[int, int, int, int]] = Counter()

    def logits(self, philosophers: int) -> Floats:
        """Return the habits counted at tables of this size, (N, 9, 5) logits by seat, situation and action.

        Counts of a seat are smoothed with the frequencies over all seats, at a weight of two observations.
        """
        counts = np.zeros((philosophers, CLASSES, CHOICES))
        for (n, seat, situation, action), count in self._counts.items():
            if n == philosophers:
                counts[seat, situation, action] += count
        everybody = counts.sum(axis=0) + 0.5
        counts += 2 * everybody / everybody.sum(axis=-1, keepdims=True)
        return np.log(counts / counts.sum(axis=-1, keepdims=True))

    def step(self, states: Sequence[State], joint_actions: Sequence[Sequence[str]]) -> list[Outcome[State]]:
        """Count the actions of the hungry and do the step."""
        tables: dict[int, Any] = {}
        for state, actions in zip(states, joint_actions, strict=True):
            if self.talking(state):
                continue
            key = id(state.board)
            if key not in tables:
                tables[key] = seen(state.table)
            movers = self.acting(state)
            for i in range(len(actions)) if movers is None else movers:
                if state.table.eating[i, state.column] == 0:
                    what = int(tables[key][i, state.column]), read_reply(actions[i]).action
                    self._counts[(len(actions), i, *what)] += 1
        return super().step(states, joint_actions)
