"""The games in which credit is compared with the truth: tables of rewards of the project's own environments.

Embedded teams (the default with two agents, modules with three): of every agent some actions are drawn from the team,
and all combinations are executed.  The policies of the game are these draws, each as likely as it was drawn, so its
truth is exact.  What it misses of the model's own policy is the chance of the draw, whose error `error_of_the_pool`
gives.

Philosophers (three, and five): every seat takes each of the four actions with equal chance; all joint actions are
executed, and after that the table is played to its horizon by a script that never deadlocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.credit_fidelity import Game
from pipeline_lib.environments.philosophers.runtime import PhilosophersEnvironment, State, side_by_side
from pipeline_lib.environments.philosophers.scenarios import generate_scenarios
from pipeline_lib.environments.philosophers.scripted import script
from pipeline_lib.environments.philosophers.settings import PhilosophersSettings, ScenarioProblems
from pipeline_lib.play import Player, groups
from pipeline_lib.policies.policy import Team
from pipeline_lib.rollouts.engine import Engine, Sampling

#: Actions drawn of each agent, by the number of agents: all combinations of the different ones are executed.
POOL = {2: 32, 3: 12}
LETTERS = "WLRD"
CONTINUED_BY = "hierarchy"


def embedded_games(
    environment: Any, team: Team, engine: Engine, sampling: Sampling, problems: Sequence[Any], seed: int
) -> list[Game]:
    """Return a game per problem; a joint action that the infrastructure loses is executed once more.

    Args:
        environment: the team's.
        team: two or three agents; the engine holds it.
        engine: samples.
        sampling: how.
        problems: one game each.
        seed: of the draws.
    """
    player = Player(environment, team, engine, sampling)
    agents = len(environment.agents(problems[0]))
    pool = POOL[agents]
    experience = player.play(groups(problems, pool, seed))
    found = []
    for number, problem in enumerate(problems):
        decisions = experience.decisions[number * pool : (number + 1) * pool]
        state = environment.start(problem)
        texts, policies = [], []
        for agent in range(agents):
            said, counts = np.unique([d.actions[agent].text for d in decisions], return_counts=True)
            texts.append([*said.tolist(), environment.stub(state, agent)])
            policies.append(np.append(counts / pool, 0.0))
        joint = list(itertools.product(*texts))
        outcomes = environment.step([state] * len(joint), joint)
        for place in [place for place, outcome in enumerate(outcomes) if outcome.reward is None]:
            [outcomes[place]] = environment.step([state], [joint[place]])
        rewards = np.array([outcome.reward for outcome in outcomes], dtype=np.float64)
        if np.isnan(rewards).any():
            raise RuntimeError(f"{problem.id}: the sandbox failed twice at the same program")
        table = rewards.reshape([len(policy) for policy in policies])
        found.append(Game(tuple(policies), table, table))
    return found


def error_of_the_pool(games: Sequence[Game]) -> float:
    """Return the standard error of a true advantage as one of the model's own policy, root mean square over actions.

    The worth of an action is a mean over the draws of the other agents, and the mean that is subtracted is over as
    many.  With several others, the errors of their draws add up (Hajek's projection).
    """
    found = []
    for game in games:
        agents = range(len(game.policies))
        for agent in agents:
            own = game.policies[agent]
            spread = np.zeros(len(own))
            for other in set(agents) - {agent}:
                table = _mean_over(game, set(agents) - {agent, other}, game.whole)
                table = table if agent < other else table.T
                centred = table - own @ table  # what the other's draw changes for this action only
                weights = game.policies[other]
                spread += (centred**2) @ weights - (centred @ weights) ** 2
            found.append(float(own @ spread) / POOL[len(game.policies)])
    return float(np.sqrt(np.mean(found)))


def _mean_over(game: Game, agents: set[int], values: NDArray[np.float64]) -> NDArray[np.float64]:
    for agent in sorted(agents, reverse=True):
        values = np.tensordot(values, game.policies[agent], axes=(agent, 0))
    return values


def philosophers_games(philosophers: int, count: int, seed: int, horizon: int = 8) -> list[Game]:
    """Return ``count`` games at the first step of a table, all of whose seats act."""
    family = {"philosophers": [philosophers], "horizon": [horizon], "held": 0.5}
    sizes = {"train": 4 * count, "validation": 1, "test": 1}
    section = ScenarioProblems.model_validate({"seed": seed, "sizes": sizes, "family": family})
    environment = PhilosophersEnvironment(PhilosophersSettings(prompt="compact"))
    found: list[Game] = []
    for scenario in generate_scenarios(section)["train"]:
        state = environment.start(scenario)
        if len(environment.acting(state) or range(philosophers)) < philosophers or len(found) == count:
            continue
        nothing = environment.stub(state, 0)
        joint = list(itertools.product([*LETTERS, nothing], repeat=philosophers))
        outcomes = environment.step([state] * len(joint), joint)
        now = np.array([outcome.reward for outcome in outcomes], dtype=np.float64)
        whole = now + _played_on(environment, outcomes)
        shape = (len(LETTERS) + 1,) * philosophers
        policies = (np.append(np.full(len(LETTERS), 1 / len(LETTERS)), 0.0),) * philosophers
        found.append(Game(policies, now.reshape(shape), whole.reshape(shape)))
    return found


def _played_on(environment: PhilosophersEnvironment, outcomes: Sequence[Any]) -> np.ndarray[Any, Any]:
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
