"""The ladder: teams whose worth is known beforehand, and whether the reward puts them in that order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from pipeline_lib.audit.result import Check, Rung, Status

#: Distance between degenerate and working teams, as a share of the range of rewards on the ladder.
MARGIN = 0.1


def make_rung(
    name: str,
    role: str,
    rewards: Sequence[float],
    outcomes: Sequence[float],
    terms: Sequence[Mapping[str, float]],
    metrics: Sequence[Mapping[str, float]] = (),
) -> Rung:
    """Average the episodes of one team.

    Args:
        name: what the team does.
        role: ``degenerate``, ``working`` or ``other``.
        rewards: reward per episode, at least one.
        outcomes: what is wanted, per episode.
        terms: reward terms per episode.
        metrics: further quantities per episode.
    """
    values = np.asarray(rewards, dtype=np.float64)
    spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return Rung(
        name=name,
        role=role,
        episodes=len(values),
        reward=float(values.mean()),
        error=spread / float(np.sqrt(len(values))),
        outcome=float(np.mean(outcomes)),
        terms=_means(terms),
        metrics=_means(metrics),
    )


def compare(rungs: Sequence[Rung], wanted: str) -> list[Check]:
    """Check the order of the ladder.

    Args:
        rungs: all teams, some of them degenerate and some working.
        wanted: what `Rung.outcome` is, in words, for example "tests passed".

    Returns:
        ``ladder``: FAIL if a degenerate team earns as much as a working one, give or take `MARGIN` of the range;
        ``best``: FAIL if a team without the wanted outcome earns most; ``order``: WARN if rewards and outcomes
        rank the teams differently.
    """
    spread = max(r.reward for r in rungs) - min(r.reward for r in rungs)
    return [_separation(rungs, spread), _best(rungs, wanted), _order(rungs, wanted)]


def _separation(rungs: Sequence[Rung], spread: float) -> Check:
    degenerate = [r for r in rungs if r.role == "degenerate"]
    working = [r for r in rungs if r.role == "working"]
    if not degenerate or not working:
        return Check(
            "ladder", Status.WARN, "There is nothing to compare: no degenerate or no working team could be played."
        )
    top = max(degenerate, key=lambda r: r.reward)
    low = min(working, key=lambda r: r.reward)
    numbers = {
        "degenerate": top.name,
        "degenerate_reward": top.reward,
        "working": low.name,
        "working_reward": low.reward,
        "margin": MARGIN * spread,
    }
    if top.reward > low.reward - MARGIN * spread:
        relation = "more than" if top.reward > low.reward else "nearly as much as"
        better = sum(top.reward > r.reward for r in working)
        return Check(
            "ladder",
            Status.FAIL,
            f"'{top.name}' earns {top.reward:.3f}, {relation} the working team '{low.name}' ({low.reward:.3f}); it "
            f"beats {better} of {len(working)} working teams.",
            numbers,
        )
    return Check(
        "ladder",
        Status.PASS,
        f"No degenerate team comes near a working one: at most {top.reward:.3f} ('{top.name}'), at least "
        f"{low.reward:.3f} ('{low.name}').",
        numbers,
    )


def _best(rungs: Sequence[Rung], wanted: str) -> Check:
    first = max(rungs, key=lambda r: (r.reward, r.outcome))
    most = max(r.outcome for r in rungs)
    numbers = {"best": first.name, "reward": first.reward, "outcome": first.outcome, "best_outcome": most}
    if first.outcome < 0.5 * most:
        return Check(
            "best",
            Status.FAIL,
            f"'{first.name}' earns most ({first.reward:.3f}) with {wanted} {first.outcome:.2f}, where another team "
            f"reaches {most:.2f}.",
            numbers,
        )
    return Check(
        "best", Status.PASS, f"The most rewarded team, '{first.name}', has {wanted} {first.outcome:.2f}.", numbers
    )


def _order(rungs: Sequence[Rung], wanted: str) -> Check:
    tau = float(stats.kendalltau([r.reward for r in rungs], [r.outcome for r in rungs]).statistic)
    if np.isnan(tau):
        return Check(
            "order", Status.WARN, f"All teams earn the same, or all have the same {wanted}: no order to check."
        )
    status = Status.PASS if tau >= 0.5 else Status.WARN
    agree = "agree" if status is Status.PASS else "disagree"
    return Check(
        "order",
        status,
        f"Reward and {wanted} {agree} on the order of the {len(rungs)} teams (Kendall's tau {tau:.2f}).",
        {"tau": tau},
    )


def _means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = {name for row in rows for name in row}
    return {name: float(np.mean([row[name] for row in rows if name in row])) for name in sorted(names)}
