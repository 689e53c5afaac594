"""From settings to how the teams of an arm answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline_lib.protocols import Protocol, make_protocol
from tasks.experiment.arms import TEAM

if TYPE_CHECKING:
    from pipeline_lib.settings import Params


def protocol_of(params: Params, arm: str) -> Protocol:
    """Return how the teams of an arm answer; a single agent has nobody to read."""
    return make_protocol(params.rollouts.protocol if arm == TEAM else "decentralised")
