"""The single-model baseline: one model sees everything and does all the work."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline_lib.protocols.decentralised import Decentralised


class SingleModel(Decentralised):
    """One agent; the environment has to be set up for it (``environment.team: single``)."""

    name = "single_model"

    def check(self, agents: Sequence[str]) -> None:
        """Refuse a team."""
        if len(agents) != 1:
            raise ValueError(
                f"protocol {self.name} is for one agent, the environment has {len(agents)} ({', '.join(agents)}); "
                "set environment.team to single"
            )
