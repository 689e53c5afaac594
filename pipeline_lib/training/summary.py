"""The metrics of one step for the log: rewards, differences within groups, and the update.

Names are grouped by slash: ``reward/``, ``terms/``, ``metrics/``, ``groups/``, ``actions/``, ``update/``,
``observations/``, ``executions/``, ``costs/``, ``fidelity/``, ``mismatch/``, ``memory/``, ``time/``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from pipeline_lib.play.experience import Decision, Experience, costs_of
from pipeline_lib.rollouts.engine import Action
from pipeline_lib.training.advantages import returns_to_go
from pipeline_lib.training.batch import Counts
from pipeline_lib.training.update import UpdateReport


def experience_metrics(
    experience: Experience, advantages: Sequence[Sequence[float | None]], flat_share: float
) -> dict[str, float]:
    """Return reward, terms, environment metrics and counters of the collected experience.

    ``reward/mean`` and ``reward/std`` are of the undiscounted return of whole episodes; terms are summed over turns,
    environment metrics are those of last turns; in a tree both are averages over a joint action's continuations.
    Combinations executed for credit are in none of these; ``executions/`` counts them, and ``costs/`` what they cost.
    ``observations/cut_turns`` and ``observations/cut_tokens`` are sums over all observations.
    ``groups/advantage_std`` is the mean over the agents' places in the joint action.  ``actions/length_mean`` and
    ``actions/entropy`` are also given for each policy.
    """
    decisions = experience.decisions
    scored = [decision for decision in decisions if decision.reward is not None]
    totals = returns_to_go([d.reward for d in decisions], [d.parent for d in decisions], 1.0)
    whole = [value for d, value in zip(decisions, totals, strict=True) if d.parent is None and value is not None]
    actions = [action for decision in decisions for _, action in decision.sampled()]
    tokens = sum(len(action.ids) for action in actions)
    known = _known(actions)
    found = {
        "groups/flat_share": flat_share,
        "groups/masked_share": 1 - len(scored) / max(1, len(decisions)),
        "actions/count": float(len(actions)),
        "actions/tokens": float(tokens),
        "actions/tool_calls": float(sum(decision.tool_calls for decision in decisions)),
        "observations/cut_turns": float(sum(decision.cut_turns for decision in decisions)),
        "observations/cut_tokens": float(sum(decision.cut_tokens for decision in decisions)),
        "executions/count": float(experience.executed),
        "executions/cells": float(len(decisions) + sum(len(c.chosen) - c.size for c in experience.cells)),
    }
    found |= costs_of(experience)
    if whole:
        found |= {"reward/mean": float(np.mean(whole)), "reward/std": float(np.std(whole))}
    places = itertools.zip_longest(*advantages)
    if spreads := [np.std(kept) for place in places if (kept := [value for value in place if value is not None])]:
        found["groups/advantage_std"] = float(np.mean(spreads))
    if actions:
        found |= {
            "actions/length_mean": tokens / len(actions),
            "actions/truncated_share": sum(action.finish == "length" for action in actions) / len(actions),
            "actions/entropy": _entropy(known),
        }
    for name, own in _by_policy(decisions).items():
        found[f"actions/length_mean/{name}"] = sum(len(action.ids) for action in own) / len(own)
        if measured := _known(own):
            found[f"actions/entropy/{name}"] = _entropy(measured)
    roots = sum(decision.weight for decision in scored if decision.parent is None)
    found |= {f"terms/{name}": total / roots for name, total in _weighted(scored, "terms")[0].items()}
    sums, weights = _weighted([decision for decision in scored if decision.last], "metrics")
    return found | {f"metrics/{name}": total / weights[name] for name, total in sums.items()}


def update_metrics(
    reports: Mapping[str, UpdateReport], counts: Mapping[str, Counts], stale: int, rate: float
) -> dict[str, float]:
    """Return the metrics of all updates: sums over policies, and gradient norms by policy.

    Norms that are not finite are left out; ``update/refused`` counts these steps.
    """
    found = {
        "update/learning_rate": rate,
        "update/stale": float(stale),
        "update/loss": sum(report.loss for report in reports.values()),
        "update/refused": float(sum(not math.isfinite(norm) for r in reports.values() for norm in r.norms)),
    }
    for name in ("rows", "collapsed", "skipped", "truncated"):
        found[f"update/{name}"] = float(sum(getattr(count, name) for count in counts.values()))
    for name, report in reports.items():
        if norms := [norm for norm in report.norms if math.isfinite(norm)]:
            found[f"update/gradient_norm/{name}"] = max(norms)
    edges = sum(report.edges for report in reports.values())
    found["update/edges"] = float(edges)
    found["update/tokens"] = float(sum(report.tokens for report in reports.values()))
    if edges:
        passes = sum(report.edges * (len(report.norms) - 1) for report in reports.values())
        found |= {
            "mismatch/max": max(report.gap_max for report in reports.values()),
            "mismatch/mean": sum(report.gap_sum for report in reports.values()) / edges,
            "update/corrected_share": sum(report.corrected for report in reports.values()) / edges,
            "update/clipped_share": sum(report.clipped for report in reports.values()) / max(1, passes),
            "update/kl": sum(report.kl for report in reports.values()),
        }
    return found


def _by_policy(decisions: Sequence[Decision]) -> dict[str, list[Action]]:
    found: dict[str, list[Action]] = {}
    for decision in decisions:
        for name, action in decision.sampled():
            found.setdefault(name, []).append(action)
    return found


def _known(actions: Sequence[Action]) -> list[Action]:
    """Leave out actions of servers that do not return log-probabilities."""
    return [action for action in actions if not any(map(math.isnan, action.logprobs))]


def _entropy(actions: Sequence[Action]) -> float:
    """Return the estimated entropy per token in nats: the mean of minus the log-probability of what was sampled."""
    tokens = sum(len(action.ids) for action in actions)
    return -sum(math.fsum(action.logprobs) for action in actions) / max(1, tokens)


def _weighted(decisions: Sequence[Decision], name: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return the weighted sum of each entry of ``terms`` or ``metrics``, and the sum of its weights."""
    sums: dict[str, float] = {}
    weights: dict[str, float] = {}
    for decision in decisions:
        for key, value in getattr(decision, name).items():
            sums[key] = sums.get(key, 0.0) + decision.weight * value
            weights[key] = weights.get(key, 0.0) + decision.weight
    return sums, weights
