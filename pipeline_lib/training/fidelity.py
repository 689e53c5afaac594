"""How near the advantages of an update are to the true ones (``train.fidelity_every``).

The true advantage of action a of agent i in a state is, with the weights of this update,

    A*_i(a) = E[R | agent i does a] - E[R]

It is estimated by playing: `PARTNERS` times all agents act again from the state to the end of the episode, once with
the first action of agent i replaced by a, and once without.  The first actions of the other agents are the same both
times, so the difference varies less than its parts.  Its mean is unbiased, and its standard error is known.  The draws
are fresh: an estimate that is compared with the rewards that it was computed from looks perfect.

Random draws depend on the run's seed, the step and the state, and on nothing that training draws.  Nothing is learned
from what is played here, so training continues as if nothing had been measured.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.credit.plans import Aligned
from pipeline_lib.play import Experience, Player, Root
from pipeline_lib.play.fixing import Fixed, FixedActions, SampledOnce
from pipeline_lib.play.roots import derive
from pipeline_lib.training.advantages import returns_to_go

Floats = NDArray[np.float64]

#: The sign of a true advantage closer to 0 than this does not count.
CLEAR = 0.05


@dataclass(frozen=True, slots=True)
class Agreement:
    """Estimated and true advantages of one agent's actions in one state."""

    correlation: float | None  #: Pearson's; 0 if the estimates are all equal, None if the true advantages are
    #: Share of the actions with a clear true advantage (`CLEAR`) whose estimate has the same sign; None without such
    #: actions.
    sign: float | None
    error: float  #: mean squared difference


def agreement(estimated: Floats, true: Floats) -> Agreement:
    """Compare estimates with the truth; both of the same shape, finite and not empty."""
    correlation = sign = None
    if true.std() > 1e-9:
        correlation = float(np.corrcoef(estimated.ravel(), true.ravel())[0, 1]) if estimated.std() > 1e-12 else 0.0
    if (clear := np.abs(true) > CLEAR).any():
        sign = float(np.mean(np.sign(estimated[clear]) == np.sign(true[clear])))
    return Agreement(correlation, sign, float(np.mean((estimated - true) ** 2)))


#: First states of a step whose actions are measured, and fresh joint actions in each.
STATES, PARTNERS = 4, 32


class Truth(NamedTuple):
    """A true advantage as it is known: mean and standard error."""

    mean: float
    error: float


@dataclass(frozen=True, slots=True)
class _FreshChance:
    """Seeds of a fresh episode from a state that training started in too."""

    state: int  #: seed of the environment's chance, that of the state
    place: tuple[int | str, ...]  #: run's seed, step, and name of the state
    number: int  #: of the fresh joint action; the same for every action that it meets

    def start(self) -> int:
        return self.state

    def action(self, turn: int, path: tuple[int, ...], agent: int, *again: int) -> int:
        return derive("fidelity", *self.place, self.number, turn, path, agent, *again)


def measure_fidelity(
    player: Player,
    roots: Sequence[Root],
    experience: Experience,
    estimated: Sequence[Sequence[float | None]],
    discount: float,
    seed: int,
    step: int,
    gains: bool = False,
) -> dict[str, float]:
    """Return how near advantages are to the truth, by agent.

    Args:
        player: played the experience; its weights are still the same.
        roots: its first states.
        experience: of this step; its first decisions are those of ``roots``.
        estimated: advantage of every action of every decision.
        discount: of later turns' rewards.
        seed: of the run.
        step: number of the update.
        gains: as `returns_to_go`.

    Returns:
        For each agent, averages over the first `STATES` states: ``fidelity/correlation/<agent>``,
        ``fidelity/sign/<agent>`` (see `Agreement`), ``fidelity/error/<agent>`` (mean squared difference) and
        ``fidelity/truth_error/<agent>`` (the part of it that is due to the truth's own error: its mean squared standard
        error).  What is not defined in any state is left out.  ``fidelity/executions`` and ``time/fidelity_s`` are the
        cost.
    """
    began = time.perf_counter()
    found: dict[str, list[float]] = {}
    executions, first = 0, 0
    for root in roots[:STATES]:
        decisions = experience.decisions[first : first + root.n]
        rows = estimated[first : first + root.n]
        first += root.n
        names = player.environment.agents(root.problem)
        acting = player.environment.acting(player.environment.start(root.problem, root.chance.start()))
        numbers = tuple(range(len(names))) if acting is None else tuple(acting)
        said = {agent: [decision.actions[place].text for decision in decisions] for place, agent in enumerate(numbers)}
        truth, executed = true_advantages(player, root, said, discount, (seed, step), gains=gains)
        executions += executed
        for place, agent in enumerate(numbers):
            pairs = [
                (value, truth[agent, text])
                for text, row in zip(said[agent], rows, strict=True)
                if (value := row[place]) is not None and (agent, text) in truth
            ]
            if not pairs:
                continue
            known = agreement(np.array([value for value, _ in pairs]), np.array([true.mean for _, true in pairs]))
            values = {
                "correlation": known.correlation,
                "sign": known.sign,
                "error": known.error,
                "truth_error": float(np.mean([true.error**2 for _, true in pairs])),
            }
            for name, value in values.items():
                if value is not None:
                    found.setdefault(f"fidelity/{name}/{names[agent]}", []).append(value)
    means = {name: float(np.mean(values)) for name, values in found.items()}
    return means | {"fidelity/executions": float(executions), "time/fidelity_s": time.perf_counter() - began}


def true_advantages(
    player: Player,
    root: Root,
    said: dict[int, list[str]],
    discount: float,
    place: tuple[int | str, ...],
    partners: int = PARTNERS,
    gains: bool = False,
) -> tuple[dict[tuple[int, str], Truth], int]:
    """Return the true advantages of first actions, with their standard errors.

    Args:
        player: whose policies; agents must act without reading each other.
        root: the state.
        said: by number of the agent, the texts to judge; equal ones are judged once.
        discount: of later turns' rewards.
        place: what the random draws depend on, besides the problem.
        partners: fresh joint actions per text.
        gains: as `returns_to_go`.

    Returns:
        By agent and text; and the number of joint actions executed.  A text with fewer than two pairs that the
        infrastructure did not lose is left out.
    """
    cases = [(-1, ""), *((agent, text) for agent, texts in said.items() for text in dict.fromkeys(texts))]
    name = getattr(root.chance, "name", root.problem.id)
    fresh = [_FreshChance(root.chance.start(), (*place, name), number) for number in range(partners)]
    roots = [
        Root(Fixed(root.problem, given={agent: text} if agent >= 0 else {}), 1, chance)
        for agent, text in cases
        for chance in fresh
    ]
    playing = replace(
        player,
        environment=FixedActions(player.environment),
        engine=SampledOnce(player.engine),
        plan=Aligned(),
        tree=False,
        overlap=1,
    )
    played = playing.play(roots)
    returns = returns_to_go([d.reward for d in played.decisions], [d.parent for d in played.decisions], discount, gains)
    starts = [value for d, value in zip(played.decisions, returns, strict=True) if d.parent is None]
    table = np.array([np.nan if value is None else value for value in starts]).reshape(len(cases), partners)
    found = {}
    for case, row in zip(cases[1:], table[1:], strict=True):
        differences = row - table[0]
        differences = differences[~np.isnan(differences)]
        if len(differences) > 1:
            error = float(differences.std(ddof=1)) / len(differences) ** 0.5
            found[case] = Truth(float(differences.mean()), error)
    return found, played.executed
