"""Create a plan by its name."""

from __future__ import annotations

from typing import Any

from pipeline_lib.credit.aligned import Aligned
from pipeline_lib.credit.column import Column
from pipeline_lib.credit.cross import Cross
from pipeline_lib.credit.latin import Latin
from pipeline_lib.credit.pairings import Pairings
from pipeline_lib.credit.plan import Plan
from pipeline_lib.credit.removal import Removal
from pipeline_lib.credit.replay import Replay

PLANS: dict[str, type[Plan]] = {plan.name: plan for plan in (Aligned, Pairings, Latin, Cross, Column, Removal, Replay)}


def make_plan(kind: str, **options: Any) -> Plan:
    """Return the plan called ``kind``.

    Args:
        kind: a name in `PLANS`.
        options: the plan's own settings.
    """
    return PLANS[kind](**options)
