"""What the teams of an arm are made from."""

from pipeline_lib.assembly.teams import Setup
from pipeline_lib.protocols import make_protocol
from pipeline_lib.settings import Params
from tasks.experiment.arms import BASE, PROBLEMS, TEAM, environment_section


def setup_of(params: Params, arm: str) -> Setup:
    """Return what an arm's teams are made from; a single agent has no other agents' texts to read."""
    protocol = make_protocol(params.rollouts.protocol if arm == TEAM else "decentralised")
    return Setup(params, environment_section(params, arm), protocol, PROBLEMS, BASE)
