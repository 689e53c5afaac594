"""Which teams stand beside the selected one, by the names that plan, verdict and report use, and what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline_lib.evaluation.verdict import BASE, LAST
from pipeline_lib.settings.params import senseless

if TYPE_CHECKING:
    from pipeline_lib.settings import Params

SINGLE_AGENT = "single-agent GRPO"
UNTRAINED_SINGLE_AGENT = "untrained single agent"

#: Names of the teams that are the untrained base with another protocol.
UNTRAINED = {
    "naive_concatenation": "untrained naive concatenation",
    "sequential_pipeline": "untrained sequential pipeline",
    "one_round_discussion": "untrained one-round discussion",
}


def comparisons(params: Params) -> tuple[str, ...]:
    """Return the names of the teams that the selected one is compared with, the primary first."""
    single = (SINGLE_AGENT, UNTRAINED_SINGLE_AGENT) if params.seeds.single_agent else ()
    return (BASE, LAST, *single, *(UNTRAINED[protocol] for protocol in params.evaluate.baselines))


def notes(params: Params) -> list[str]:
    """Say what a reader must know of the baseline protocols, a paragraph each."""
    environment, played = params.environment, params.evaluate.baselines
    found = []
    if not played:
        reason = senseless("sequential_pipeline", environment) or "evaluate.baselines is empty"
        found.append(f"Baselines in which untrained agents read what others wrote are left out: {reason}.")
    if reading := [UNTRAINED[name].removeprefix("untrained ") for name in played if name != "naive_concatenation"]:
        text = (
            f"In the {' and the '.join(reading)}, untrained agents read what others wrote; what they sample and read "
            "in every round counts as their cost."
        )
        if params.policy.kind == "embedded":
            text += (
                " This tiny model has never seen quoted text and does not read it, which a real model does; so the "
                "comparison says little here."
            )
        found.append(text)
    if environment.kind == "coding" and environment.team == "pair" and environment.turns == 1:
        found.append("With one turn, the base is also the baseline that is known as naive concatenation.")
    return found
