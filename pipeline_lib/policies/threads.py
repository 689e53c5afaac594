"""How many threads compute for a model on the CPU.

Small models use one: with two, their products are not faster on an idle machine and five to twenty times slower on a
busy one.  Larger models use all cores that the process may use.  The rule depends on the model alone, so a run that
continues uses as many as before; another number changes sums by rounding.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from pipeline_lib.memory import SMALL_MODEL

if TYPE_CHECKING:
    from pipeline_lib.policies.policy import Team


def is_large(team: Team) -> bool:
    """Return whether a model of the team has more than `SMALL_MODEL` parameters."""
    sizes = (sum(p.numel() for _, p in policy.model.named_parameters()) for policy in team.policies.values())
    return max(sizes, default=0) > SMALL_MODEL


def threads_for(team: Team) -> int:
    """Return the number of threads for the largest model of a team."""
    return len(os.sched_getaffinity(0)) if is_large(team) else 1


@contextlib.contextmanager
def right_threads(team: Team) -> Iterator[None]:
    """Let torch use the right number of threads for a team in a ``with`` block."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads_for(team))
    try:
        yield
    finally:
        torch.set_num_threads(before)
