"""The score of a joint action."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Score:
    """The reward terms and metrics of one joint action.

    Attributes:
        terms: all weighted reward terms by name; the reward is their sum.
        metrics: a value for each metric of the task, unweighted.
        details: JSON-like facts for reports; ``schemes`` is a list of names of the ways in which the team solved the
            problem.
        agent_rewards: what each agent earns by itself, by name, if the task's class sets ``rewards_agents``.
    """

    terms: Mapping[str, float]
    metrics: Mapping[str, float]
    details: Mapping[str, Any] = field(default_factory=dict)
    agent_rewards: Mapping[str, float] = field(default_factory=dict)
