"""The paper's protocol: in every turn each agent acts on its own observation and sees no other agent's text."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline_lib.protocols.protocol import Protocol, Sample, TurnInput, all_at_once, gather


class Decentralised(Protocol):
    """All agents act at once, in every turn of the environment."""

    name = "decentralised"

    def act(self, inputs: Sequence[TurnInput], sample: Sample) -> list[list[str]]:
        """Prompt every acting agent once, all at the same time."""
        requests = all_at_once(inputs)
        return gather(inputs, requests, sample(requests))
