"""The paper's protocol: in every turn each agent acts on its own observation and sees no other agent's text."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline_lib.protocols.protocol import Protocol, Seat, Speak, all_at_once, gather


class Decentralised(Protocol):
    """All agents act at once, in every turn of the environment."""

    name = "decentralised"

    def act(self, seats: Sequence[Seat], speak: Speak) -> list[list[str]]:
        """Ask every agent once, all at the same time."""
        asks = all_at_once(seats)
        return gather(seats, asks, speak(asks))
