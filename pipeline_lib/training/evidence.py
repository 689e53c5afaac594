"""What the monitors of training read of an update's experience (docs/monitors.md).

Standard errors are computed over problems, because the joint actions of one problem depend on each other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pipeline_lib.environment_api.environment import Environment
from pipeline_lib.monitors import MOST, End
from pipeline_lib.play.experience import Decision, Experience
from pipeline_lib.training.advantages import returns_to_go

#: Different prompts that an agent must have answered before its answers count as constant.
LEAST_PROMPTS = 8


def evidence(
    experience: Experience,
    advantages: Sequence[Sequence[float | None]],
    end: End | None,
    environment: Environment[Any, Any],
) -> dict[str, float]:
    """Return metrics for the monitors.

    Args:
        experience: of an update.
        advantages: of every action of every decision.
        end: the metric that the reward should stand for; with None there are no monitors, and nothing is returned.
        environment: says on whose parts others build, and whether turns are attempts at the same thing.

    Returns:
        ``reward/error`` and ``reward/end_error``: standard errors of ``reward/mean`` and of the metric's mean;
        ``agents/<share>/<agent>`` in teams; ``turns/gain/<turn>`` (turns from 2) for attempts; ``failures/...`` for
        agents that others build on; ``tests/gap`` where outcomes tell of visible tests.
    """
    if end is None:
        return {}
    decisions = experience.decisions
    totals = returns_to_go([d.reward for d in decisions], [d.parent for d in decisions], 1.0)
    whole = [(d.problem, v, 1.0) for d, v in zip(decisions, totals, strict=True) if d.parent is None and v is not None]
    scored = [d for d in decisions if d.reward is not None]
    ended = [(d.problem, d.metrics[end.name], d.weight) for d in scored if d.last and end.name in d.metrics]
    found = {"reward/error": mean_by_problem(whole)[1]} if whole else {}
    if ended:
        found["reward/end_error"] = mean_by_problem(ended)[1]
    found |= _agents(decisions, advantages)
    if environment.retries:
        found |= _turns(decisions)
    return found | _failures(scored, environment.relied_on) | _gap(scored, end)


def mean_by_problem(values: Iterable[tuple[str, float, float]]) -> tuple[float, float]:
    """Return a weighted mean and its standard error, with problems as clusters.

    The linearised (Taylor) error of a ratio of sums over clusters (Cochran 1977, section 6.3); 1e9 for one problem.

    Args:
        values: problem, value and weight of each; at least one.
    """
    sums: dict[str, list[float]] = {}
    for problem, value, weight in values:
        cluster = sums.setdefault(problem, [0.0, 0.0])
        cluster[0] += weight * value
        cluster[1] += weight
    table = np.array(list(sums.values()))
    total = table[:, 1].sum()
    mean = float(table[:, 0].sum() / total)
    count = len(table)
    if count < 2:
        return mean, 1e9  # the log takes finite numbers only
    rest = table[:, 0] - mean * table[:, 1]
    return mean, float(math.sqrt(count / (count - 1) * float((rest**2).sum())) / total)


def _agents(decisions: Sequence[Decision], advantages: Sequence[Sequence[float | None]]) -> dict[str, float]:
    """Return what each agent of a team wrote: shares of empty and equal texts, of the tokens and of the credit."""
    texts: dict[str, dict[tuple[int, ...], Counter[str]]] = {}
    tokens: Counter[str] = Counter()
    credit: dict[str, float] = {}
    surprise: dict[str, float] = {}
    for decision, row in zip(decisions, advantages, strict=True):
        for agent, prompt, action, advantage in zip(
            decision.agents, decision.prompts, decision.actions, row, strict=True
        ):
            texts.setdefault(agent, {}).setdefault(prompt, Counter())[action.text.strip()] += 1
            tokens[agent] += len(action.ids)
            credit[agent] = credit.get(agent, 0.0) + abs(advantage or 0.0)
            surprise[agent] = surprise.get(agent, 0.0) - math.fsum(action.logprobs)
    if len(texts) < 2:
        return {}
    found = {}
    for agent, by_prompt in texts.items():
        count = sum(counter.total() for counter in by_prompt.values())
        found[f"agents/empty_share/{agent}"] = sum(counter[""] for counter in by_prompt.values()) / count
        if len(by_prompt) >= LEAST_PROMPTS:
            usual = Counter(counter.most_common(1)[0][0] for counter in by_prompt.values())
            found[f"agents/same_share/{agent}"] = usual.most_common(1)[0][1] / len(by_prompt)
        found[f"agents/token_share/{agent}"] = tokens[agent] / max(1, tokens.total())
        found[f"agents/credit_share/{agent}"] = credit[agent] / total if (total := sum(credit.values())) else 0.0
        if not math.isnan(surprise[agent]):  # a server that says no probabilities
            found[f"agents/entropy/{agent}"] = surprise[agent] / max(1, tokens[agent])
    return found


def _turns(decisions: Sequence[Decision]) -> dict[str, float]:
    """Return by how much each attempt is better than the one that it continues, on average."""
    gains: dict[int, list[tuple[str, float, float]]] = {}
    for decision in decisions:
        before = None if decision.parent is None else decisions[decision.parent].reward
        if before is not None and decision.reward is not None:
            own = decision.problem, decision.reward - before, decision.weight
            gains.setdefault(decision.turn + 1, []).append(own)
    found = {}
    for turn, values in gains.items():
        found[f"turns/gain/{turn}"], found[f"turns/gain_error/{turn}"] = mean_by_problem(values)
    return found


def _failures(decisions: Sequence[Decision], agents: Sequence[str]) -> dict[str, float]:
    """Return the share of joint actions that failed, and of these the share that each agent's part caused."""
    if not agents or not decisions:
        return {}
    failed = [decision for decision in decisions if "caused_by" in decision.details]
    found = {"failures/share": len(failed) / len(decisions)}
    for agent in agents if failed else ():
        values = [(d.problem, float(d.details["caused_by"] == agent), d.weight) for d in failed]
        share, error = mean_by_problem(values)
        # If all failures are alike there is no spread; what is seen in n problems may still differ in one of n.
        found[f"failures/caused/{agent}"] = share
        found[f"failures/caused_error/{agent}"] = max(error, MOST / len({d.problem for d in failed}))
    return found


def _gap(decisions: Sequence[Decision], end: End) -> dict[str, float]:
    """Return by how much the share of visible tests passed exceeds that of hidden ones."""
    values = [
        (d.problem, float(d.details["visible"]) - d.metrics[end.name], d.weight)
        for d in decisions
        if "visible" in d.details and end.name in d.metrics
    ]
    if not values:
        return {}
    gap, error = mean_by_problem(values)
    return {"tests/gap": gap, "tests/gap_error": error}
