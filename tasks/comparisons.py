"""Which teams stand beside the selected one, by the names that plan, verdict and report use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline_lib.evaluation.verdict import BASE, LAST

if TYPE_CHECKING:
    from pipeline_lib.settings import Params

SINGLE_AGENT = "single-agent GRPO"
UNTRAINED_SINGLE_AGENT = "untrained single agent"


def comparisons(params: Params) -> tuple[str, ...]:
    """Return the names of the teams that the selected one is compared with, the primary first."""
    baselines = (SINGLE_AGENT, UNTRAINED_SINGLE_AGENT) if params.seeds.single_agent else ()
    return (BASE, LAST, *baselines)
