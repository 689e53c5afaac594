"""The ladder: teams whose value is known beforehand; the reward should rank them in that order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from pipeline_lib.audit.claims import best_policy
from pipeline_lib.audit.result import Check, Rung, Status


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
        outcomes: value of the wanted metric per episode.
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


def bounded(rewards: Sequence[float], bounds: tuple[float, float]) -> Check:
    """Check that rewards are finite and within the declared bounds, FAIL if not; other checks rely on the bounds."""
    values, (least, greatest) = np.asarray(rewards, dtype=np.float64), bounds
    slack = 1e-9 * max(1.0, abs(least), abs(greatest))
    if not np.isfinite(values).all():
        sentence = f"{(~np.isfinite(values)).sum()} of {len(values)} rewards are not finite numbers."
        return Check("bounds", Status.FAIL, sentence, {}, "return finite terms for every episode.")
    low, high = float(values.min()), float(values.max())
    numbers = {"least": low, "greatest": high, "bounds": list(bounds)}
    if low < least - slack or high > greatest + slack:
        sentence = f"Rewards lie between {low:.3f} and {high:.3f}, outside the bounds {least:.3f} to {greatest:.3f}."
        return Check("bounds", Status.FAIL, sentence, numbers, "correct the reward's bounds.")
    return Check("bounds", Status.PASS, f"All rewards lie within {least:.3f} to {greatest:.3f}.", numbers)


def compare(rungs: Sequence[Rung], wanted: str) -> list[Check]:
    """Check the order of the ladder.

    Args:
        rungs: all teams, some of them degenerate and some working.
        wanted: what `Rung.outcome` is, in words, for example "tests passed".

    Returns:
        ``best``: whether the team that earns most does the task, see `claims.best_policy`; ``ladder``: FAIL if a
        degenerate team earns as much as half of the working ones or more, WARN if as much as one; ``order``: WARN if
        rewards and outcomes rank the teams differently.
    """
    return [_best(rungs, wanted), _separation(rungs), _order(rungs, wanted)]


def _best(rungs: Sequence[Rung], wanted: str) -> Check:
    found = best_policy([r.reward for r in rungs], [r.outcome for r in rungs], [r.error for r in rungs])
    team = rungs[found.index]
    numbers = {"best": team.name, "reward": team.reward, "outcome": team.outcome, "best_outcome": found.most}
    if found.share >= 0.999 or found.most == 0:
        sentence = f"The most rewarded team, '{team.name}', has {wanted} {team.outcome:.2f}."
        return Check("best", Status.PASS if found.most else Status.WARN, sentence, numbers)
    return Check(
        "best",
        found.status,
        f"'{team.name}' earns {'most' if team.reward >= found.best else 'as much as any team'} ({team.reward:.3f}) "
        f"with {wanted} {team.outcome:.2f}, where another team reaches {found.most:.2f}.",
        numbers,
        f"pay for {wanted} up to its maximum, so that '{team.name}' earns less than the team that reaches it.",
    )


def _separation(rungs: Sequence[Rung]) -> Check:
    degenerate = [r for r in rungs if r.role == "degenerate"]
    working = [r for r in rungs if r.role == "working"]
    if not degenerate or not working:
        return Check(
            "ladder", Status.WARN, "Nothing can be compared: no degenerate team or no working team could be played."
        )
    top = max(degenerate, key=lambda r: r.reward)
    low = min(working, key=lambda r: r.reward)
    beaten = [r.name for r in working if top.reward >= r.reward - 1e-9]
    numbers = {
        "degenerate": top.name,
        "degenerate_reward": top.reward,
        "working": low.name,
        "working_reward": low.reward,
        "beaten": beaten,
    }
    if not beaten:
        return Check(
            "ladder",
            Status.PASS,
            f"No degenerate team earns as much as a working one: at most {top.reward:.3f} ('{top.name}'), at least "
            f"{low.reward:.3f} ('{low.name}').",
            numbers,
        )
    return Check(
        "ladder",
        Status.FAIL if 2 * len(beaten) >= len(working) else Status.WARN,
        f"'{top.name}' earns {top.reward:.3f}, {'more than' if top.reward > low.reward else 'as much as'} the working "
        f"team '{low.name}' ({low.reward:.3f}); it beats {len(beaten)} of {len(working)} working teams.",
        numbers,
        f"take away what '{top.name}' is paid for without doing the task, or pay more for the task.",
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
