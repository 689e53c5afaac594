"""The teams that the selected one is compared with: their names in plan, verdict and report, and their definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline_lib.environment_api.registry import find
from pipeline_lib.evaluation.verdict import BASE, FIRST_TURN, LAST, SINGLE_AGENT

if TYPE_CHECKING:
    from pipeline_lib.settings import Params

UNTRAINED_SINGLE_AGENT = "untrained single agent"

#: Names of the teams that are the untrained base with another protocol.
UNTRAINED = {
    "naive_concatenation": "untrained naive concatenation",
    "sequential_pipeline": "untrained sequential pipeline",
    "one_round_discussion": "untrained one-round discussion",
}

#: Protocols in which agents read what others wrote.
READING = ("sequential_pipeline", "one_round_discussion")


def comparisons(params: Params) -> tuple[str, ...]:
    """Return the names of the teams that the selected one is compared with, the primary first."""
    single = (SINGLE_AGENT, UNTRAINED_SINGLE_AGENT) if params.seeds.single_agent else ()
    own = (FIRST_TURN,) if has_attempts(params) else ()
    return (BASE, LAST, *single, *(UNTRAINED[protocol] for protocol in params.evaluate.baselines), *own)


def has_attempts(params: Params) -> bool:
    """Return whether an episode can have several turns that are attempts at the same thing."""
    return getattr(params.environment, "turns", 1) > 1 and find(params.environment.kind).retries


def outside(params: Params) -> dict[str, str]:
    """Return which comparisons are not in the family, and why; settings decide this before anything is tested.

    The embedded model learns to read from the prompts of its warm start.  If no prompt quotes other agents' texts, a
    team of this model cannot read the prompts of a protocol in which agents read each other.  A win against it means
    nothing, and including it would reduce the power of the other comparisons.  The same is true of the last checkpoint
    if it is the selected one.
    """
    found = {LAST: "if it is the selected checkpoint in every training run, both are the same team"}
    if _cannot_read(params):
        reason = "the embedded model has never seen quoted text, so it cannot read what this protocol quotes"
        found |= {UNTRAINED[protocol]: reason for protocol in params.evaluate.baselines if protocol in READING}
    return found


def _cannot_read(params: Params) -> bool:
    return params.policy.kind == "embedded" and not find(params.environment.kind).demonstrates_reading


def family_size(params: Params) -> int:
    """Return how many comparisons the plan corrects for: all except those that are always outside the family."""
    return len(set(comparisons(params)) - set(outside(params)) | {LAST})


def notes(params: Params) -> list[str]:
    """Return notes on the baseline protocols for the reader of the report, a paragraph each."""
    environment, played = params.environment, params.evaluate.baselines
    task = find(environment.kind)
    protocol = params.rollouts.protocol
    found = []
    if protocol != "decentralised":
        found.append(f"The trained team and its base play the {UNTRAINED[protocol].removeprefix('untrained ')}.")
    if not played:
        reason = task.unsuitable("sequential_pipeline", environment) or "evaluate.baselines is empty"
        found.append(f"Baselines in which untrained agents read what others wrote are left out: {reason}.")
    if reading := [UNTRAINED[name].removeprefix("untrained ") for name in played if name in READING]:
        text = (
            f"In the {' and the '.join(reading)}, untrained agents read what others wrote; what they sample and read "
            "in every round counts as their cost."
        )
        if _cannot_read(params):
            text += (
                " This tiny model has never seen quoted text and does not read it, which a real model does; so these "
                "comparisons are outside the family, as the plan says, and get no verdict."
            )
        found.append(text)
    # The environment's notes on the base are about decentralised agents.
    return found + (task.notes(environment) if protocol == "decentralised" else [])
