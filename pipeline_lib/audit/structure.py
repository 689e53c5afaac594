"""Do the problems need a team at all?  The untrained single agent plays the same problems as the untrained team."""

from __future__ import annotations

import numpy as np
from scipy import stats

from pipeline_lib.audit.preflight import Played
from pipeline_lib.audit.result import Check, Status

#: A single agent does as well if the lower limit of its difference from the team is above minus this share.
MARGIN = 0.05


def cooperative_structure(team: Played, single: Played, wanted: str, words: str) -> Check | None:
    """Compare an untrained single agent with an untrained team.

    Args:
        team: groups of the team, one per problem.
        single: groups of the single agent on the same problems.
        wanted: the metric that the reward should stand for, in [0, 1].
        words: that metric in words.

    Returns:
        ``cooperative_structure``: WARN if the lower limit of the 95 % t interval over problems of the difference,
        single agent minus team, is above -`MARGIN`, unless neither does more than `MARGIN` of the task; None without
        the metric, or with fewer than two problems.
    """
    if wanted not in team.metrics or wanted not in single.metrics:
        return None
    means = [np.nanmean(played.metrics[wanted], axis=1) for played in (single, team)]
    differences = means[0] - means[1]
    differences = differences[~np.isnan(differences)]
    count = len(differences)
    if count < 2:
        return None
    estimate, error = float(differences.mean()), float(differences.std(ddof=1) / np.sqrt(count))
    half = float(stats.t.ppf(0.975, count - 1)) * error
    low, high = estimate - half, estimate + half
    numbers = {"difference": estimate, "low": low, "high": high, "problems": count}
    found = f"difference {estimate:+.2f} [{low:+.2f}, {high:+.2f}], {count} problems"
    if max(float(np.nanmean(mean)) for mean in means) <= MARGIN:
        return Check(
            "cooperative_structure",
            Status.PASS,
            f"Before training neither a single agent nor the team has {words} ({found}), so they cannot be compared.",
            numbers,
        )
    if low > -MARGIN:
        return Check(
            "cooperative_structure",
            Status.WARN,
            f"Before training a single agent does as well as the team in {words} ({found}): the problems may not need "
            "a team.",
            numbers,
            "take problems that need several agents, or compare with a trained single agent (seeds.single_agent).",
        )
    return Check(
        "cooperative_structure",
        Status.PASS,
        f"Before training it is not shown that a single agent does as well as the team in {words} ({found}).",
        numbers,
    )
