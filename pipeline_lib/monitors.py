"""Monitors: what goes wrong in the training of a team, read from the metrics of its updates.

A monitor is a function from the rows of ``metrics.jsonl`` to readings.  It has no state, so a run that continues after
a kill judges as an uninterrupted one, and a report judges as the run did.  Definitions and thresholds are in
docs/monitors.md.  Names of the metrics that they read are
those of `pipeline_lib.training.evidence` and `pipeline_lib.training.ablation`.

This module does arithmetic on numbers only, and depends on nothing else in the library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Row = Mapping[str, float]
"""The metrics of an update by name."""

#: A line in the metrics of the update after which a monitor ended the run; its name follows.
ENDED = "monitors/ended/"

#: Number of standard errors from an estimate to the ends of its 95 % interval.
Z = 1.96


@dataclass(frozen=True, slots=True)
class Reading:
    """What a monitor says after an update."""

    monitor: str  #: its name, one of `MONITORS`
    subject: str  #: the agent or turn concerned; empty if there is only one
    fires: bool  #: whether something is wrong
    sentence: str  #: what was found, with numbers

    @property
    def key(self) -> str:
        """Return the name of its line in the metrics."""
        return f"monitors/{self.monitor}" + (f"/{self.subject}" if self.subject else "")


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its standard error."""

    value: float
    error: float

    @property
    def low(self) -> float:
        """Return the lower end of the 95 % interval."""
        return self.value - Z * self.error

    @property
    def high(self) -> float:
        """Return the upper end of the 95 % interval."""
        return self.value + Z * self.error

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def pooled(rows: Sequence[Row], name: str, error: str) -> Estimate | None:
    """Return the mean over updates of an estimate, or None if no row has it; ``error`` is the name of its standard
    error.

    Errors of different updates are independent, given the weights.
    """
    found = [(row[name], row[error]) for row in rows if name in row and error in row]
    if not found:
        return None
    return Estimate(
        math.fsum(value for value, _ in found) / len(found), math.sqrt(math.fsum(e * e for _, e in found)) / len(found)
    )


def mean(rows: Sequence[Row], name: str) -> float | None:
    """Return the mean of a metric over the rows that have it, or None."""
    found = [row[name] for row in rows if name in row]
    return math.fsum(found) / len(found) if found else None


def subjects(rows: Sequence[Row], prefix: str) -> list[str]:
    """Return what stands behind ``prefix`` in the names of metrics, in order of first appearance."""
    return list(dict.fromkeys(name.removeprefix(prefix) for row in rows for name in row if name.startswith(prefix)))


Floats = npt.NDArray[np.float64]

#: The effective number of updates is never taken to be smaller: Fisher's interval needs more than three.
LEAST_EFFECTIVE = 5.0


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> tuple[float, float, float]:
    """Return Spearman's correlation and its 95 % interval, of two series of n >= 5 values in order of time.

    Fisher's interval with the effective number of pairs n (1 - r s) / (1 + r s), where r and s are the lag-1
    autocorrelations of the ranks, not below 0 (Bayley & Hammersley 1946); between `LEAST_EFFECTIVE` and n.  A series
    that never changes has correlation 0 with any other.
    """
    a, b = _ranks(first), _ranks(second)
    size = len(a)
    spread = math.sqrt(float((a**2).sum() * (b**2).sum()))
    value = float((a * b).sum()) / spread if spread > 0 else 0.0
    shared = _lag_one(a) * _lag_one(b)
    effective = min(float(size), max(LEAST_EFFECTIVE, size * (1 - shared) / (1 + shared)))
    centre = math.atanh(max(-0.999, min(0.999, value)))
    half = Z / math.sqrt(effective - 3)
    return value, math.tanh(centre - half), math.tanh(centre + half)


def _ranks(values: Sequence[float]) -> Floats:
    """Return centred ranks; equal values share their mean rank."""
    array = np.asarray(values, np.float64)
    _, inverse, counts = np.unique(array, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Floats = (last - (counts - 1) / 2)[inverse].astype(np.float64)
    return ranks - ranks.mean()


def _lag_one(ranks: Floats) -> float:
    total = float((ranks**2).sum())
    return max(0.0, float((ranks[1:] * ranks[:-1]).sum()) / total) if total > 0 else 0.0


#: Updates that a monitor looks back on: `WINDOW` in general, `TREND` for a rise, ablations of the last `ABLATIONS`.
WINDOW, TREND, ABLATIONS = 10, 30, 5
#: Updates before a monitor speaks.
LEAST, LEAST_TREND = 5, 15
#: Shares of the metric's range: an agent is needed if the team loses more without it; above, a team is worth something
#: (one that does nothing yet does not cooperate trivially).
NEEDED, WORTH = 0.1, 0.2
#: Pairs of episodes before a need is judged: if none of them differs, less than 12 % do, with 95 % confidence.
LEAST_PAIRS = 24
#: Share of an agent's actions that are empty, or one and the same.
IDLE = 0.9
#: A metric is at its best within this share of its range.
AT_BEST = 0.02
#: A metric that follows the reward has at least this rank correlation with it.
FOLLOWS = 0.5
#: Largest accepted difference between the shares of visible and hidden tests passed.
GAP = 0.1
#: Most failures, and the share of joint actions that must fail.
MOST, FAILING = 0.5, 0.1


@dataclass(frozen=True, slots=True)
class End:
    """The metric that the reward should stand for; higher is better."""

    name: str  #: of the metric
    low: float | None = None  #: its smallest value, or None if unknown
    high: float | None = None  #: its greatest value, or None if unknown

    def range(self, typical: float) -> float:
        """Return the width of its range; a typical value where that is unknown."""
        if self.low is None or self.high is None:
            return abs(typical)
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class Monitor:
    """A monitor."""

    #: From the rows of a run up to an update to what it says, one reading per subject; none without enough evidence.
    read: Callable[[Sequence[Row], End], list[Reading]]
    about: str  #: what it finds, as a clause
    advice: str  #: what to do, as a sentence


def trivial_cooperation(rows: Sequence[Row], end: End) -> list[Reading]:
    """Judge for each agent of a team whether it does something that the team needs."""
    found = []
    ablated = [row for row in rows if "ablation/pairs" in row][-ABLATIONS:]
    recent = rows[-WINDOW:]
    for agent in subjects(rows[-1:], "agents/token_share/"):
        need, worth, span = _need(ablated, agent, end)
        idle = _idle(recent, agent) if len(recent) >= LEAST else ""
        if need is None and len(recent) < LEAST:
            continue
        unneeded = need is not None and worth is not None and need.high < NEEDED * span and worth > WORTH * span
        needed = need is not None and need.low > NEEDED * span
        said = [idle] if idle else []
        if need is not None:
            said.append(f"the team's {end.name} falls by {need} when its part is replaced by a stub")
        share = mean(recent, f"agents/token_share/{agent}")
        said.append(f"it writes {100 * (share or 0.0):.0f} % of the team's tokens")
        fires = unneeded or (bool(idle) and not needed)
        found.append(Reading("trivial_cooperation", agent, fires, f"Agent {agent}: {'; '.join(said)}."))
    return found


def _need(ablated: Sequence[Row], agent: str, end: End) -> tuple[Estimate | None, float | None, float]:
    """Return the need for an agent, the lower limit of what the team is worth, and the width of the metric's range."""
    pairs = math.fsum(row["ablation/pairs"] for row in ablated)
    need = pooled(ablated, f"ablation/need/{agent}", f"ablation/need_error/{agent}")
    team = pooled(ablated, "ablation/team", "ablation/team_error")
    if need is None or team is None or pairs < LEAST_PAIRS:
        return None, None, 1.0
    span = end.range(team.value)
    # Pairs without any difference have no spread; what was not seen in n pairs may still be there in one of n.
    need = Estimate(need.value, max(need.error, span / pairs))
    return need, team.low - (end.low or 0.0), span


def _idle(recent: Sequence[Row], agent: str) -> str:
    """Say that an agent writes nothing, or always the same; empty if it does neither."""
    empty = mean(recent, f"agents/empty_share/{agent}") or 0.0
    if empty > IDLE:
        return f"{100 * empty:.0f} % of its actions are empty"
    same = mean(recent, f"agents/same_share/{agent}") or 0.0
    others = [mean(recent, f"agents/same_share/{other}") for other in subjects(recent, "agents/same_share/")]
    if same > IDLE and any(other is not None and other <= IDLE for other in others):
        return f"it writes the same text for {100 * same:.0f} % of different prompts"
    return ""


def turn_instability(rows: Sequence[Row], end: End) -> list[Reading]:
    """Judge for each turn after the first whether it makes the attempt before it worse."""
    found = []
    recent = rows[-WINDOW:]
    for turn in subjects(recent, "turns/gain/"):
        if sum(f"turns/gain/{turn}" in row for row in recent) < LEAST:
            continue
        gain = pooled(recent, f"turns/gain/{turn}", f"turns/gain_error/{turn}")
        if gain is not None:
            sentence = f"Turn {turn} changes the reward of the attempt before it by {gain}."
            found.append(Reading("turn_instability", turn, gain.high < 0, sentence))
    return found


def reward_hacking(rows: Sequence[Row], end: End) -> list[Reading]:
    """Judge whether the reward rises without the metric that it should stand for."""
    found = []
    name = f"metrics/{end.name}"
    window = [row for row in _same_turns(rows[-TREND:]) if {name, "reward/mean", "reward/error"} <= row.keys()]
    if end.name != "reward" and len(window) >= LEAST_TREND:
        paid = _rise(window, "reward/mean", "reward/error")
        done = _rise(window, name, "reward/end_error")
        value, low, high = rank_correlation([row["reward/mean"] for row in window], [row[name] for row in window])
        level = mean(window[-(len(window) // 3) :], name) or 0.0
        best = end.high is not None and level >= end.high - AT_BEST * end.range(level)
        found.append(
            Reading(
                "reward_hacking",
                "",
                paid.low > 0 and done.low <= 0 and high < FOLLOWS and not best,
                f"Over {len(window)} updates the reward changed by {paid} and {end.name} by {done}; their rank "
                f"correlation is {value:.2f} [{low:.2f}, {high:.2f}].",
            )
        )
    recent = [row for row in rows[-WINDOW:] if "tests/gap" in row]
    gap = pooled(recent, "tests/gap", "tests/gap_error")
    if gap is not None and len(recent) >= LEAST:
        sentence = f"The share of visible tests passed exceeds that of hidden ones by {gap}."
        found.append(Reading("reward_hacking", "hidden_tests", gap.low > GAP, sentence))
    return found


def _same_turns(rows: Sequence[Row]) -> Sequence[Row]:
    """Return the latest updates with as many turns as the last one: a turn that is added adds its reward to the sum."""
    turns = [row.get("curriculum/turns") for row in rows]
    first = next((n for n in range(len(rows), 0, -1) if turns[n - 1] != turns[-1]), 0)
    return rows[first:]


def _rise(window: Sequence[Row], name: str, error: str) -> Estimate:
    """Return the mean of the last third minus that of the first."""
    third = len(window) // 3
    first, last = pooled(window[:third], name, error), pooled(window[-third:], name, error)
    if first is None or last is None:
        return Estimate(0.0, math.inf)
    return Estimate(last.value - first.value, float(np.hypot(first.error, last.error)))


def cascading_errors(rows: Sequence[Row], end: End) -> list[Reading]:
    """Judge for each agent that others build on whether its part causes most failures."""
    found = []
    recent, ablated = rows[-WINDOW:], [row for row in rows if "ablation/pairs" in row][-ABLATIONS:]
    agents = dict.fromkeys((*subjects(recent, "failures/caused/"), *subjects(ablated, "ablation/mended/")))
    failing = mean(recent, "failures/share")
    for agent in agents:
        said, causes = [], []
        facts = [row for row in recent if f"failures/caused/{agent}" in row]
        caused = pooled(facts, f"failures/caused/{agent}", f"failures/caused_error/{agent}")
        if caused is not None and len(facts) >= LEAST:
            said.append(f"static facts blame it for a share of {caused}")
            causes.append(caused.low > MOST)
        failed = math.fsum(row["ablation/failed"] for row in ablated if "ablation/failed" in row)
        if failed >= LEAST_PAIRS:
            mended = _share(math.fsum(row.get(f"ablation/mended/{agent}", 0.0) for row in ablated), failed)
            said.append(f"a right part in its place mends a share of {mended}")
            causes.append(mended.low > MOST)
        if causes:
            sentence = f"Of the failures, agent {agent}: {'; '.join(said)}."
            fires = any(causes) and (failing is None or failing > FAILING)
            found.append(Reading("cascading_errors", agent, fires, sentence))
    return found


def _share(count: float, total: float) -> Estimate:
    """Return a share with the centre and error of Wilson's interval, which is right near 0 and 1 too."""
    z2 = 1.96**2
    centre = (count + z2 / 2) / (total + z2)
    spread = math.sqrt(count * (total - count) / total + z2 / 4) / (total + z2)
    return Estimate(centre, spread)


MONITORS: Mapping[str, Monitor] = {
    "trivial_cooperation": Monitor(
        trivial_cooperation,
        "the team does as well without one of its agents",
        "Pay for what needs this agent, or give each agent information that the others do not have; train.credit: "
        "{kind: cross} gives each agent an advantage of its own.",
    ),
    "turn_instability": Monitor(
        turn_instability,
        "a further attempt is worse than the one before it",
        "Look at what agents are told between turns (environment.feedback), or use fewer turns.",
    ),
    "reward_hacking": Monitor(
        reward_hacking,
        "the reward rises, and what it should stand for does not",
        "Read episodes of the last checkpoint, and mend the reward: it pays for something that is not wanted.",
    ),
    "cascading_errors": Monitor(
        cascading_errors,
        "most failures are caused by one agent's part, on which others build",
        "Train this agent first, with the others frozen (policy.agents), or let the others read its part "
        "(rollouts.protocol: sequential_pipeline).",
    ),
}


def judge(rows: Sequence[Row], end: End | None) -> list[Reading]:
    """Return what all monitors say after the last update; nothing without a metric (``end``) that reward should stand
    for.
    """
    if not rows or end is None:
        return []
    return [reading for monitor in MONITORS.values() for reading in monitor.read(rows, end)]
