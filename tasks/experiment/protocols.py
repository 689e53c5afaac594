"""The protocol of an arm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline_lib.protocols import Protocol, make_protocol
from tasks.experiment.arms import TEAM

if TYPE_CHECKING:
    from pipeline_lib.settings import Params


def protocol_of(params: Params, arm: str) -> Protocol:
    """Return the protocol of an arm's teams; a single agent has no other agents' texts to read."""
    return make_protocol(params.rollouts.protocol if arm == TEAM else "decentralised")
