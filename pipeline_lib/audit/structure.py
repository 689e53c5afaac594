"""Do the problems need a team at all?  One agent plays the same problems as the untrained team, in two ways.

An agent of the team *alone* has the team's weights, prompts and random draws, and the environment's stub in place of
what the others write.  So how well the base follows a format is the same on both sides.  The *single agent* is the
baseline of the chain: one agent with a prompt of its own, which is told everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

from pipeline_lib.audit.preflight import Floats, Played
from pipeline_lib.audit.result import Check, Status

#: One agent does as well if the lower limit of its difference from the team is above minus this share.
MARGIN = 0.05

_NAME = "cooperative_structure"


@dataclass(frozen=True, slots=True)
class OneAgent:
    """Groups of one untrained agent instead of the team, on the same problems as the team."""

    alone: Mapping[str, Played]  #: of each agent of the team alone, by name
    single: Played  #: of the single agent
    #: The agents of the team are told different things (`Environment.divided`), so the single agent is told more than
    #: any of them.
    divided: bool


@dataclass(frozen=True, slots=True)
class _Difference:
    """One agent minus the team, with the means of both and the 95 % t interval over problems."""

    one: float
    team: float
    estimate: float
    low: float
    high: float
    problems: int

    def __str__(self) -> str:
        return f"{self.one:.2f}, difference from the team {self.estimate:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


def cooperative_structure(team: Played, one: OneAgent, wanted: str, words: str) -> Check | None:
    """Compare one agent with a team, all untrained.

    If the team's information is divided, the comparison with the single agent is shown and not judged: it would only
    say how much the information is worth.

    Args:
        team: groups of the team, one per problem.
        one: groups of one agent.
        wanted: the metric that the reward should stand for, in [0, 1].
        words: that metric in words.

    Returns:
        ``cooperative_structure``: WARN if the lower limit of the 95 % t interval over problems of a judged difference,
        one agent minus team, is above -`MARGIN`, unless none does more than `MARGIN` of the task; None without the
        metric, or with fewer than two problems.
    """
    lone = {
        agent: found for agent, played in one.alone.items() if (found := _compare(played, team, wanted)) is not None
    }
    other = _compare(one.single, team, wanted)
    if not lone or other is None:
        return None
    agent, best = max(lone.items(), key=lambda item: item[1].estimate)
    judged = [best] if one.divided else [best, other]
    numbers = {
        "team": best.team,
        "problems": best.problems,
        "divided": one.divided,
        **{f"alone_{name}": _numbers(found) for name, found in lone.items()},
        "single": _numbers(other),
    }
    shown = (
        f"Before training, {words} on {best.problems} problems (95 % intervals): the team {best.team:.2f}; {agent}, "
        f"the best of its agents alone, with a stub in place of the others, {best}; a single agent that is told "
        f"everything {other}."
    )
    if max(best.team, *(found.one for found in judged)) <= MARGIN:
        return Check(_NAME, Status.PASS, f"{shown} All do too little to be compared.", numbers)
    equal = [
        name
        for name, found in (("an agent alone", best), ("the single agent", other))
        if found in judged and found.low > -MARGIN
    ]
    if equal:
        who = f"{' and '.join(equal)} {'do' if len(equal) > 1 else 'does'}"
        return Check(
            _NAME,
            Status.WARN,
            f"{shown} So {who} as well as the team: the problems may not need one.",
            numbers,
            "take problems that need several agents, or give each agent information of its own; otherwise keep the "
            "trained single agent (seeds.single_agent), and claim no more than the verdict's comparison with it.",
        )
    if all(found.high < 0 for found in judged):
        follows = " So the team does more than one agent with no more information than an agent of the team has."
    else:
        follows = " So it is not shown that one agent does as well as the team, nor that it does worse."
    if one.divided:
        follows += (
            " The single agent is not judged: it is told what no agent of the team is told, and has another prompt, "
            "which the base may follow better or worse."
        )
    return Check(_NAME, Status.PASS, shown + follows, numbers)


def _compare(one: Played, team: Played, wanted: str) -> _Difference | None:
    """Return the difference over the problems that both played, or None if there are fewer than two."""
    if wanted not in one.metrics or wanted not in team.metrics:
        return None
    means = [_means(played.metrics[wanted]) for played in (one, team)]
    both = ~np.isnan(means[0] - means[1])
    count = int(both.sum())
    if count < 2:
        return None
    first, second = (mean[both] for mean in means)
    differences = first - second
    half = float(stats.t.ppf(0.975, count - 1) * differences.std(ddof=1) / np.sqrt(count))
    estimate = float(differences.mean())
    return _Difference(float(first.mean()), float(second.mean()), estimate, estimate - half, estimate + half, count)


def _means(values: Floats) -> Floats:
    """Return the mean of every group, NaN for a group of which every episode was lost."""
    known = ~np.isnan(values)
    counts = known.sum(axis=1)
    return np.where(counts > 0, np.where(known, values, 0.0).sum(axis=1) / np.maximum(counts, 1), np.nan)


def _numbers(found: _Difference) -> dict[str, float]:
    return {"mean": found.one, "difference": found.estimate, "low": found.low, "high": found.high}
