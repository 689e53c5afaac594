"""Training in miniature: a table of action probabilities learns from the reward, from several starts, in seconds.

The policy is a softmax over the four actions for each of the nine things a philosopher can see of its forks, shared by
all.  It learns as teams do: groups of episodes on one scenario, return-to-go less the group's mean at the same step.
Where a language model starts decides what becomes of it, so there are several starts: uniform, timid (it mostly
waits), grabby (it mostly takes its left fork), and the base policy's own habits if it could be sampled.  It shows the
landscape of the reward, not what a language model will do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from pipeline_lib.audit.result import Check, Status
from pipeline_lib.environments.philosophers.memoryless import CLASSES, seen
from pipeline_lib.environments.philosophers.play import Batch, lay_batches
from pipeline_lib.environments.philosophers.rewards import Reward
from pipeline_lib.environments.philosophers.rules import step
from pipeline_lib.environments.philosophers.summary import metrics, summarise
from pipeline_lib.environments.philosophers.table import LEFT, WAIT
from pipeline_lib.problems.scenarios import Scenario

Floats = npt.NDArray[np.float64]

#: Episodes that are compared, and updates.
GROUP, UPDATES = 32, 300

#: Learning rate of plain gradient ascent on the logits; gradients are divided by the number of philosophers.
RATE = 1.0

#: A start has collapsed when it ends with fewer meals than this share of the optimum.
COLLAPSE = 0.05


def starts() -> dict[str, Floats]:
    """Return the logits, (9, 4), of the standard starts."""
    timid, grabby = np.zeros((CLASSES, 4)), np.zeros((CLASSES, 4))
    timid[:, WAIT] = np.log(0.95 / (0.05 / 3))
    grabby[:, LEFT] = np.log(0.98 / (0.02 / 3))
    return {"uniform": np.zeros((CLASSES, 4)), "timid": timid, "grabby": grabby}


def dry_run(
    reward: Reward,
    scenarios: Sequence[Scenario],
    sequential: bool,
    seed: int,
    habits: Mapping[str, Floats] | None = None,
    updates: int = UPDATES,
    progress: Callable[[int, int, str], None] = lambda done, total, text: None,
) -> list[Check]:
    """Train the miniature on the most frequent kind of table.

    Args:
        reward: what it learns from.
        scenarios: training scenarios.
        sequential: one philosopher moves per step.
        seed: seed of all draws.
        habits: further starts by name, as (9, 4) logits.
        updates: gradient steps.
        progress: called now and then.

    Returns:
        ``dry_run_NAME`` per start: FAIL if it ends without meals, WARN if it ends with fewer than it began with.
    """
    batches = lay_batches(scenarios, sequential)
    batch = max(batches, key=lambda b: len(b.scenarios))
    logits = np.stack([*starts().values(), *(habits or {}).values()])  # (K, 9, 4)
    names = [*starts(), *(habits or {})]
    rng = np.random.default_rng([seed, 20])
    history = []
    for update in range(updates):
        logits, found = learn(logits, batch, reward, rng)
        history.append(found)
        if update % 50 == 0:
            progress(update, updates, "dry run")
    window = max(1, updates // 10)
    first = {key: np.mean([found[key] for found in history[:3]], axis=0) for key in history[0]}
    last = {key: np.mean([found[key] for found in history[-window:]], axis=0) for key in history[0]}
    return [
        _judge(name, {k: v[i] for k, v in first.items()}, {k: v[i] for k, v in last.items()})
        for i, name in enumerate(names)
    ]


def learn(logits: Floats, batch: Batch, reward: Reward, rng: np.random.Generator) -> tuple[Floats, dict[str, Floats]]:
    """Do one update of K tables of logits, (K, 9, 4), and return what their groups did, (K,) each."""
    kinds = len(logits)
    column = int(rng.integers(len(batch.scenarios)))
    table = batch.table.select(np.full(kinds * GROUP, column))
    optimum = batch.optimum[column]
    owner = np.repeat(np.arange(kinds), GROUP)
    chances = np.exp(logits - logits.max(axis=-1, keepdims=True))
    chances /= chances.sum(axis=-1, keepdims=True)
    cumulative = chances.cumsum(axis=-1)[..., :3]
    earned = np.zeros(kinds * GROUP)
    rewards, choices, acted = [], [], []
    while not table.done.all():
        classes = seen(table)
        draw = rng.random(classes.shape)
        action = (draw[..., None] > cumulative[owner, classes]).sum(axis=-1).astype(np.int8)
        live = ~table.done & (table.eating == 0)
        if table.sequential:
            live = live & (np.arange(len(classes))[:, None] == table.mover())
        table = step(table, action)
        total = reward.total(summarise(table, optimum))
        rewards.append(total - earned)
        earned = total
        choices.append((classes * 4 + action).astype(np.intp))
        acted.append(live)
    returns = np.cumsum(np.array(rewards)[::-1], axis=0)[::-1]  # (T, K G), return-to-go
    grouped = returns.reshape(len(returns), kinds, GROUP)
    spread = grouped[0].std(axis=-1)[:, None]  # of whole episodes: the size of the reward must not matter
    scale = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 1e-9)
    advantages = ((grouped - grouped.mean(axis=-1, keepdims=True)) * scale).reshape(returns.shape)
    weights = np.array(acted) * advantages[:, None, :]  # (T, N, K G)
    places = owner * (4 * CLASSES) + np.array(choices)
    chosen = np.bincount(places.ravel(), weights.ravel(), kinds * 4 * CLASSES).reshape(logits.shape)
    gradient = chosen - chances * chosen.sum(axis=-1, keepdims=True)
    measured = metrics(summarise(table, optimum))
    found = {
        key: measured[key].reshape(kinds, GROUP).mean(axis=-1)
        for key in ("meals", "meals_share", "deadlock", "wait_share")
    }
    found["reward"] = earned.reshape(kinds, GROUP).mean(axis=-1)
    found["flat"] = (np.ptp(earned.reshape(kinds, GROUP), axis=-1) < 1e-9).astype(np.float64)
    return logits + RATE * gradient / (GROUP * table.graph.philosophers), found


def _judge(name: str, first: Mapping[str, float], last: Mapping[str, float]) -> Check:
    numbers = {f"{key}_before": float(value) for key, value in first.items()}
    numbers |= {f"{key}_after": float(value) for key, value in last.items()}
    story = (
        f"From a {name} start the miniature goes from {first['meals']:.1f} to {last['meals']:.1f} meals "
        f"(deadlock {last['deadlock']:.0%}, reward {first['reward']:.3f} to {last['reward']:.3f})"
    )
    if last["meals_share"] < COLLAPSE:
        why = "its groups have no variance of reward" if last["flat"] > 0.5 else "it learned not to eat"
        return Check(f"dry_run_{name}", Status.FAIL, f"{story}: {why}.", numbers)
    status = Status.WARN if last["meals"] < 0.8 * first["meals"] else Status.PASS
    return Check(f"dry_run_{name}", status, f"{story}.", numbers)
