"""The audit of a philosophers' reward: scripted policies, lint, searches, dry run, and the base policy's behaviour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline_lib.audit.examiner import Examiner, Progress
from pipeline_lib.audit.result import Check, Rung, Status, bounded, compare, make_rung
from pipeline_lib.environment_api.environment import Outcome
from pipeline_lib.environments.philosophers.audit.dry_run import CHOICES, Floats, dry_run, usual_batch
from pipeline_lib.environments.philosophers.audit.lint import lint
from pipeline_lib.environments.philosophers.audit.search import search_policies, search_rules
from pipeline_lib.environments.philosophers.play import scripted_records
from pipeline_lib.environments.philosophers.rewards import Reward
from pipeline_lib.environments.philosophers.runtime import PhilosophersEnvironment
from pipeline_lib.environments.philosophers.scenarios import Scenario
from pipeline_lib.environments.philosophers.scripted import CLASSES, SCRIPTS, seen
from pipeline_lib.environments.philosophers.settings import PhilosophersSettings
from pipeline_lib.environments.philosophers.state import State
from pipeline_lib.environments.philosophers.text import read_reply
from pipeline_lib.evaluation.episodes import EpisodeRecord

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
