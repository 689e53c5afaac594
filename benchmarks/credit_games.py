"""The games in which credit is compared with the truth: tables of rewards of the project's own environments.

The embedded default (two agents): of every agent `POOL` actions are drawn from the team, and all pairs are executed.
The policies of the game are these draws, each as likely as it was drawn, so its truth is exact.  What it misses of the
model's own policy is the chance of the draw, whose error `error_of_the_pool` gives.

Philosophers (three, and five): every seat takes each of the four actions with equal chance; all joint actions are
executed, and after that the table is played to its horizon by a script that never deadlocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.credit_fidelity import Game
from pipeline_lib.environments.philosophers.runtime import Philosophers
from pipeline_lib.environments.philosophers.scenarios import generate_scenarios
from pipeline_lib.environments.philosophers.scripted import script
from pipeline_lib.environments.philosophers.settings import PhilosophersEnvironment, ScenarioProblems
from pipeline_lib.environments.philosophers.state import State, side_by_side
from pipeline_lib.play import Player, groups
from pipeline_lib.policies.policy import Team
from pipeline_lib.rollouts.engine import Engine, Sampling

POOL = 32
LETTERS = "WLRD"
CONTINUED_BY = "hierarchy"


def coding_games(environment: Any, team: Team, engine: Engine, problems: Sequence[Any], seed: int) -> list[Game]:
    """Return a game per problem; a joint action that the infrastructure loses is executed once more.

    Args:
        environment: the embedded default's.
        team: whose policies; the engine holds it.
        engine: samples.
        problems: one game each.
        seed: of the draws.
    """
    player = Player(environment, team, engine, Sampling(max_new_tokens=64))
    experience = player.play(groups(problems, POOL, seed))
    found = []
    for number, problem in enumerate(problems):
        decisions = experience.decisions[number * POOL : (number + 1) * POOL]
        texts, policies = [], []
        for agent in range(2):
            said, counts = np.unique([d.actions[agent].text for d in decisions], return_counts=True)
            texts.append(said.tolist())
            policies.append(counts / POOL)
        pairs = list(itertools.product(*texts))
        outcomes = environment.step([environment.start(problem)] * len(pairs), pairs)
        for place in [place for place, outcome in enumerate(outcomes) if outcome.reward is None]:
            [outcomes[place]] = environment.step([environment.start(problem)], [pairs[place]])
        rewards = np.array([outcome.reward for outcome in outcomes], dtype=np.float64)
        if np.isnan(rewards).any():
            raise RuntimeError(f"{problem.id}: the sandbox failed twice at the same program")
        table = rewards.reshape([len(policy) for policy in policies])
        found.append(Game(tuple(policies), table, table))
    return found


def error_of_the_pool(games: Sequence[Game]) -> float:
    """Return the standard error of a true advantage as one of the model's own policy, root mean square over actions.

    The worth of an action is a mean over `POOL` draws of the partner, and the mean that is subtracted is over as many.
    """
    found = []
    for game in games:
        for agent, policy in enumerate(game.policies):
            table = np.moveaxis(game.whole, agent, 0)
            other = game.policies[1 - agent]
            centred = table - policy @ table  # what the partner's draw changes for this action only
            spread = (centred**2) @ other - (centred @ other) ** 2
            found.append(float(policy @ spread) / POOL)
    return float(np.sqrt(np.mean(found)))


def philosophers_games(philosophers: int, count: int, seed: int, horizon: int = 8) -> list[Game]:
    """Return ``count`` games at the first step of a table, all of whose seats act."""
    family = {"philosophers": [philosophers], "horizon": [horizon], "held": 0.5}
    sizes = {"train": 4 * count, "validation": 1, "test": 1}
    section = ScenarioProblems.model_validate({"seed": seed, "sizes": sizes, "family": family})
    environment = Philosophers(PhilosophersEnvironment(prompt="compact"))
    found: list[Game] = []
    for scenario in generate_scenarios(section)["train"]:
        state = environment.start(scenario)
        if len(environment.acting(state) or range(philosophers)) < philosophers or len(found) == count:
            continue
        joint = list(itertools.product(LETTERS, repeat=philosophers))
        outcomes = environment.step([state] * len(joint), joint)
        now = np.array([outcome.reward for outcome in outcomes], dtype=np.float64)
        whole = now + _played_on(environment, outcomes)
        shape = (len(LETTERS),) * philosophers
        policies = (np.full(len(LETTERS), 1 / len(LETTERS)),) * philosophers
        found.append(Game(policies, now.reshape(shape), whole.reshape(shape)))
    return found


def _played_on(environment: Philosophers, outcomes: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Return what each state earns from here to its end, by the script."""
    earned = np.zeros(len(outcomes))
    running: dict[int, State] = {place: o.state for place, o in enumerate(outcomes) if not o.done}
    rng = np.random.default_rng(0)  # the script draws nothing
    while running:
        states = list(running.values())
        codes = script(CONTINUED_BY).act(side_by_side(states), rng)
        texts = [[LETTERS[code] for code in column] for column in codes.T.tolist()]
        following = environment.step(states, texts)
        for place, outcome in zip(list(running), following, strict=True):
            earned[place] += outcome.reward
            running[place] = outcome.state
            if outcome.done:
                del running[place]
    return earned
