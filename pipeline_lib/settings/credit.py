"""``train.credit``: which combinations of the sampled actions are executed to find out who earned the reward."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pipeline_lib.settings.base import Section


class AlignedCredit(Section):
    """Joint actions as they were sampled; all agents share their advantage (the paper)."""

    kind: Literal["aligned"] = "aligned"


class PairingsCredit(Section):
    """Every action with a few different partners: per_action x G executions per group."""

    kind: Literal["pairings"] = "pairings"
    per_action: int = Field(2, ge=2, description="executions per action, the sampled joint action included")


class LatinCredit(Section):
    """A balanced part of the table of all combinations: G^2 executions per group, whatever the number of agents."""

    kind: Literal["latin"] = "latin"


class CrossCredit(Section):
    """Every combination: G^N executions per group of N agents."""

    kind: Literal["cross"] = "cross"


class ColumnCredit(Section):
    """Every action among partners that hold theirs (as C3 and COMA compare): G + N G (G - 1) executions per group."""

    kind: Literal["column"] = "column"


Credit = Annotated[
    AlignedCredit | PairingsCredit | LatinCredit | CrossCredit | ColumnCredit, Field(discriminator="kind")
]
