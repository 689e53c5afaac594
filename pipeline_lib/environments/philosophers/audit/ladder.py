"""Scripted tables of philosophers on the ladder, from doing nothing to the optimum."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline_lib.audit.ladder import bounded, compare, make_rung
from pipeline_lib.audit.result import Check, Rung, Status
from pipeline_lib.environments.philosophers.play import scripted_records
from pipeline_lib.environments.philosophers.rewards import Reward
from pipeline_lib.environments.philosophers.scenarios import Scenario
from pipeline_lib.environments.philosophers.scripted import SCRIPTS
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
    if wait >= chance:
        sentence = f"'wait' earns {wait:.3f}, no less than random play ({chance:.3f})."
        checks.append(Check("random", Status.WARN, sentence, {"wait": wait, "random": chance}))
    else:
        sentence = f"Random play earns {chance:.3f}, more than 'wait' ({wait:.3f})."
        checks.append(Check("random", Status.PASS, sentence, {"wait": wait, "random": chance}))
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
