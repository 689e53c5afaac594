"""``train.credit``: which combinations of the sampled actions are executed to give each agent its own advantage."""

from typing import Annotated, Literal

from pydantic import Field

from pipeline_lib.settings.base import Section


class AlignedCredit(Section):
    """Joint actions as they were sampled; all agents share their advantage (the paper)."""

    kind: Literal["aligned"] = "aligned"


class PairingsCredit(Section):
    """Every action with a few different partners: per_action x G executions per group."""

    kind: Literal["pairings"] = "pairings"
    per_action: int = Field(2, ge=2, description="executions per action, including the sampled joint action")


class LatinCredit(Section):
    """A balanced subset of all combinations: G^2 executions per group, for any number of agents."""

    kind: Literal["latin"] = "latin"


class CrossCredit(Section):
    """Every combination: G^N executions per group of N agents."""

    kind: Literal["cross"] = "cross"


class ColumnCredit(Section):
    """Every action of one agent, with fixed partners (as in C3 and COMA): G + N G (G - 1) executions per group."""

    kind: Literal["column"] = "column"


class RemovalCredit(Section):
    """Each joint action also without each agent (difference rewards): G (N + 1) executions per group."""

    kind: Literal["removal"] = "removal"


class ReplayCredit(Section):
    """For rollouts.protocol sequential_pipeline: alternatives of each agent for the same text of those before it."""

    kind: Literal["replay"] = "replay"
    fan_out: tuple[Annotated[int, Field(ge=2)], ...] = Field(
        (2, 4), description="alternatives of each agent, in acting order; their product is group_size"
    )


Credit = Annotated[
    AlignedCredit | PairingsCredit | LatinCredit | CrossCredit | ColumnCredit | RemovalCredit | ReplayCredit,
    Field(discriminator="kind"),
]
