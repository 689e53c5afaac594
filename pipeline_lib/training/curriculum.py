"""The curriculum: the order of training problems.

*Gates* decide whether a group has a gradient and whether a level is mastered, without state and random numbers.
*Samplers* choose the next problems: `Epochs` in random order, `Levels` from easy to hard ones, with repetition of some
easy ones, `Turns` in random order with more and more turns per episode.  The random draws of a sampler are a function
of the seed and of the number of earlier draws, and `state` is its whole state, so a run that continues after a kill
makes the same choices as an uninterrupted one.

A sampler may request a *trial* and receives its result: validation problems, played with the newest weights by the same
loop as training, but without learning.  With several processes each plays its share, and all get all results.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from pipeline_lib.credit.plans import Aligned
from pipeline_lib.environment_api.environment import Environment
from pipeline_lib.play import Experience, Player, costs_of, groups, join
from pipeline_lib.play.roots import derive
from pipeline_lib.training.advantages import is_flat
from pipeline_lib.training.parallel import Processes

if TYPE_CHECKING:
    from pipeline_lib.settings.train import Curriculum


#: Normal quantile of a two-sided 95 % interval; each limit is exceeded by chance in 2.5 %.
Z = 1.96


def has_signal(returns: Sequence[float | None]) -> bool:
    """Return whether a group has a gradient: at least two returns are known, and they differ.

    If all returns are equal, all advantages are 0.
    """
    known = np.array([value for value in returns if value is not None], dtype=np.float64)
    return known.size > 1 and not is_flat(known)


def wilson(mean: float, count: int, z: float = Z) -> tuple[float, float]:
    """Return Wilson's interval of a share (1927).

    Args:
        mean: mean of a quantity in [0, 1]; if it takes other values than 0 and 1 the interval is conservative, because
            a Bernoulli variable has the largest variance for its mean.
        count: independent observations; 0 gives (0, 1).
        z: width in standard errors.
    """
    if count == 0:
        return 0.0, 1.0
    centre = (mean + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(mean * (1 - mean) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return max(0.0, centre - half), min(1.0, centre + half)


@dataclass(frozen=True, slots=True)
class Mastery:
    """A level is mastered if the unfavourable limit of a metric's interval reaches a bound."""

    metric: str  #: a metric of the environment within [0, 1], for example ``deadlock`` or ``all_passed``
    bound: float  #: value that the unfavourable limit must reach
    smaller: bool  #: smaller values are better (``deadlock``), else larger ones (``all_passed``)

    def unfavourable_limit(self, values: Sequence[float]) -> float:
        """Return the unfavourable limit of the interval of the metric's mean."""
        mean = float(np.mean(values)) if len(values) else 0.5
        low, high = wilson(mean, len(values))
        return high if self.smaller else low

    def mastered(self, values: Sequence[float]) -> bool:
        """Return whether these independent episodes show that the level is mastered."""
        limit = self.unfavourable_limit(values)
        return limit <= self.bound if self.smaller else limit >= self.bound


@dataclass(frozen=True, slots=True)
class Plateau:
    """A reward has stopped rising if one window of updates is hardly better than the window before.

    It needs no level that a team must reach: a team at the ceiling has a plateau, and so has one that a single turn
    cannot teach more.
    """

    window: int  #: updates per window
    rise: float  #: least difference between two windows that counts as rising

    def reached(self, values: Sequence[float]) -> bool:
        """Return whether the last two windows of these values show a plateau; False if there are fewer values."""
        if len(values) < 2 * self.window:
            return False
        before, now = values[-2 * self.window : -self.window], values[-self.window :]
        return float(np.mean(now)) - float(np.mean(before)) < self.rise


def problem_order(count: int, seed: int, position: int, size: int) -> list[int]:
    """Return the next problems of an endless sequence of shuffled epochs.

    Every epoch holds each problem once, in an order of its own; a step may span two epochs.

    Args:
        count: number of problems, > 0.
        seed: seed of the run.
        position: number of problems drawn before.
        size: number of problems to draw.

    Returns:
        ``size`` indices in [0, count).
    """
    orders: dict[int, list[int]] = {}
    drawn = []
    for place in range(position, position + size):
        epoch, index = divmod(place, count)
        if epoch not in orders:
            orders[epoch] = np.random.default_rng(derive("epoch", seed, epoch)).permutation(count).tolist()
        drawn.append(orders[epoch][index])
    return drawn


#: Metrics of an update under a curriculum over turns: turns per episode, and the mean reward of the last of them.
TURNS, LAST_REWARD = "curriculum/turns", "curriculum/last_reward"


class Leveled(Protocol):
    """What a curriculum needs of a problem."""

    @property
    def level(self) -> int:
        """Return the level of difficulty; higher is harder."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Episodes that are played without learning."""

    metrics: tuple[Mapping[str, float], ...]  #: the last turn's metrics of every episode
    #: The reward of every episode, by problem; None where the infrastructure failed.
    returns: tuple[tuple[float | None, ...], ...]


class Sampler(ABC):
    """Chooses the problems of every step."""

    episodes: int = 1  #: episodes per problem of a trial

    @property
    def turns(self) -> int | None:
        """Return the turns per episode in the next update; None: as many as the environment has."""
        return None

    @abstractmethod
    def draw(self, size: int) -> list[int]:
        """Return the indices of the next ``size`` problems; a problem may occur twice."""

    def updated(self, metrics: Mapping[str, float]) -> None:
        """Take the metrics of an update into account."""

    def trial(self, step: int) -> list[int]:
        """Return the indices of validation problems to play after this step; none by default."""
        return []

    def record(self, trial: Trial) -> dict[str, float]:
        """Take the result of a trial into account, and return metrics for the log."""
        return {}

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return the whole state as JSON."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""


class Epochs(Sampler):
    """Every problem once per epoch, in a new order each time.

    Args:
        count: number of problems.
        seed: seed of the run.
    """

    def __init__(self, count: int, seed: int) -> None:
        self._count, self._seed, self._drawn = count, seed, 0

    def draw(self, size: int) -> list[int]:
        chosen = problem_order(self._count, self._seed, self._drawn, size)
        self._drawn += size
        return chosen

    def state(self) -> dict[str, Any]:
        return {"drawn": self._drawn}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._drawn = int(state["drawn"])


class Levels(Sampler):
    """From the easiest level to the hardest; problems of lower levels are mixed in.

    Trials are episodes on validation problems of the current level.  After a trial, the next level begins if this one
    is mastered, or if no group of the trial has differing rewards.

    Args:
        problems: training problems of several levels.
        validation: validation problems of the same levels.
        mastery: when a level is mastered.
        replay: share in [0, 1) of problems drawn from the levels below.
        every: steps between trials.
        episodes: episodes per validation problem of a trial.
        seed: seed of the run.

    Raises:
        ValueError: a level has no validation problem.
    """

    def __init__(
        self,
        problems: Sequence[Leveled],
        validation: Sequence[Leveled],
        mastery: Mastery,
        replay: float,
        every: int,
        episodes: int,
        seed: int,
    ) -> None:
        self.levels = sorted({problem.level for problem in problems})
        self._members = {level: _of(problems, level) for level in self.levels}
        self._trials = {level: _of(validation, level) for level in self.levels}
        if missing := [level for level in self.levels if not self._trials[level]]:
            raise ValueError(
                f"train.curriculum: level {missing[0]} has no validation problem, so nothing could tell when it is "
                "mastered; raise problems.sizes.validation"
            )
        self._mastery, self._replay, self._every, self._seed = mastery, replay, every, seed
        self.episodes = episodes
        self._place, self._drawn = 0, dict.fromkeys(self.levels, 0)

    @property
    def level(self) -> int:
        """Return the current level."""
        return self.levels[self._place]

    def draw(self, size: int) -> list[int]:
        """Return indices of problems of the current level and of the levels below."""
        total = sum(self._drawn.values())
        rng = np.random.default_rng(derive("curriculum", self._seed, total))
        chosen = []
        for uniform in rng.random(size):
            level = self.level
            if self._place and uniform < self._replay:
                # Here the number is uniform on [0, replay), so it also chooses among the levels below.
                level = self.levels[int(uniform / self._replay * self._place)]
            members = self._members[level]
            [index] = problem_order(len(members), derive("level", self._seed, level), self._drawn[level], 1)
            self._drawn[level] += 1
            chosen.append(members[index])
        return chosen

    def trial(self, step: int) -> list[int]:
        """Return the validation problems of the current level if a trial is due; the last level has no trials."""
        due = step % self._every == 0 and self._place + 1 < len(self.levels)
        return list(self._trials[self.level]) if due else []

    def record(self, trial: Trial) -> dict[str, float]:
        """Go to the next level if this one is mastered, or if no group of the trial has a gradient.

        Raises:
            ValueError: the environment does not report the metric.
        """
        name = self._mastery.metric
        if trial.metrics and all(name not in row for row in trial.metrics):
            known = ", ".join(sorted({key for row in trial.metrics for key in row}))
            raise ValueError(f"train.curriculum.metric: there is no metric {name!r}; this environment has: {known}")
        values = [row[name] for row in trial.metrics if name in row]
        teaching = [has_signal(group) for group in trial.returns]
        found = {
            "curriculum/level": float(self.level),
            f"curriculum/{name}_bound": self._mastery.unfavourable_limit(values),
            "curriculum/teaching_share": sum(teaching) / max(len(teaching), 1),
        }
        if self._mastery.mastered(values) or (teaching and not any(teaching)):
            self._place += 1
        return found

    def state(self) -> dict[str, Any]:
        """Return the current level and how much was drawn of each."""
        return {"level": self.level, "drawn": {str(level): count for level, count in self._drawn.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._place = self.levels.index(int(state["level"]))
        self._drawn = {level: int(state["drawn"][str(level)]) for level in self.levels}


class Turns(Epochs):
    """Episodes of one turn first; another turn is added when the reward of the last one stops rising.

    Args:
        count: number of problems.
        seed: seed of the run.
        most: turns that the environment has.
        plateau: when the reward has stopped rising.
    """

    def __init__(self, count: int, seed: int, most: int, plateau: Plateau) -> None:
        super().__init__(count, seed)
        self._open = 1
        self._most, self._plateau = most, plateau
        self._rewards: list[float] = []  # of the last turn, since it was added

    @property
    def turns(self) -> int:
        """Return how many turns there are so far."""
        return self._open

    def updated(self, metrics: Mapping[str, float]) -> None:
        """Add a turn if the reward of the last one has reached a plateau."""
        if LAST_REWARD not in metrics or self._open == self._most:
            return
        self._rewards.append(metrics[LAST_REWARD])
        if self._plateau.reached(self._rewards):
            self._open, self._rewards = self._open + 1, []

    def state(self) -> dict[str, Any]:
        """Return how many problems were drawn, the number of turns, and the rewards since the last one was added."""
        return {**super().state(), "turns": self._open, "rewards": list(self._rewards)}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self._open, self._rewards = int(state["turns"]), [float(value) for value in state["rewards"]]


def _of(problems: Sequence[Leveled], level: int) -> list[int]:
    return [number for number, problem in enumerate(problems) if problem.level == level]


def make_sampler(
    settings: Curriculum,
    problems: Sequence[Any],
    validation: Sequence[Any],
    seed: int,
    environment: Environment[Any, Any],
) -> Sampler:
    """Return the sampler of a run.

    Args:
        settings: the ``train.curriculum`` section.
        problems: training problems.
        validation: validation problems; only ``levels`` needs them.
        seed: seed of the run.
        environment: its turns and the range of its reward; only ``turns`` needs them.

    Raises:
        ValueError: a level has no validation problem, or the environment has no turns to add.
    """
    if settings.kind == "epochs":
        return Epochs(len(problems), seed)
    if settings.kind == "turns":
        if not environment.retries or environment.turns < 2:
            raise ValueError(
                "train.curriculum: turns needs an environment with several turns that are attempts at the same thing; "
                "set environment.turns to 2 or more, or train.curriculum to {kind: epochs}"
            )
        low, high = environment.reward_bounds
        return Turns(len(problems), seed, environment.turns, Plateau(settings.window, settings.rise * (high - low)))
    mastery = Mastery(settings.metric, settings.bound, settings.better == "lower")
    return Levels(problems, validation, mastery, settings.replay, settings.every, settings.episodes, seed)


def play_trial(
    sampler: Sampler, validation: Sequence[Any], player: Player, seed: int, step: int, processes: Processes
) -> dict[str, float]:
    """Play the trial that is due after a step, if any, and return metrics for the log, ``costs/`` among them."""
    chosen = sampler.trial(step)
    if not chosen:
        return {}
    slots = processes.share(range(len(chosen)))
    roots = groups([validation[chosen[slot]] for slot in slots], sampler.episodes, seed, step, slots)
    parts = processes.gather(replace(player, tree=False, plan=Aligned()).play(roots))
    whole = join(parts)
    return sampler.record(read_trial(whole)) | costs_of(whole)


def read_trial(experience: Experience) -> Trial:
    """Return the results of a trial's episodes; episodes that the infrastructure lost have no metrics."""
    metrics = []
    returns: dict[int, list[float | None]] = {}
    for episode in experience.episodes():
        lost = any(decision.reward is None for decision in episode)
        total = None if lost else sum(decision.reward or 0.0 for decision in episode)
        returns.setdefault(episode[0].group, []).append(total)
        if not lost:
            metrics.append(dict(episode[-1].metrics))
    return Trial(tuple(metrics), tuple(tuple(values) for values in returns.values()))
