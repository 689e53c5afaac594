"""The discussion baseline: all agents write, read what the others wrote, and write again."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline_lib.protocols.protocol import Ask, Protocol, Seat, Speak, all_at_once, gather, quote


class OneRoundDiscussion(Protocol):
    """Two rounds within each turn; only the second is executed and rewarded, but both are paid for."""

    name = "one_round_discussion"

    def act(self, seats: Sequence[Seat], speak: Speak) -> list[list[str]]:
        """Ask everybody, then ask everybody again with the first answers of all."""
        first = all_at_once(seats)
        drafts = gather(seats, first, speak(first))
        second = []
        for ask in first:
            seat, draft = seats[ask.seat], drafts[ask.seat]
            others = [(f"{seat.agents[i]} wrote", draft[i]) for i in seat.acting if i != ask.agent]
            said = [("You wrote", draft[ask.agent]), *others]
            second.append(Ask(ask.seat, ask.agent, quote(ask.prompt, said, "Write your part again, so that all fit.")))
        return gather(seats, second, speak(second))
