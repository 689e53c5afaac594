"""The sequential-pipeline baseline: each agent reads what the agents before it wrote in this turn, and then writes."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline_lib.protocols.protocol import Ask, Protocol, Seat, Speak, quote


class SequentialPipeline(Protocol):
    """Agents act one after the other, in acting order; the first sees only its own observation."""

    name = "sequential_pipeline"

    def act(self, seats: Sequence[Seat], speak: Speak) -> list[list[str]]:
        """Ask the first agent of all seats, then the second with the first's answer, and so on."""
        joint = [[""] * len(seat.agents) for seat in seats]
        for position in range(max((len(seat.acting) for seat in seats), default=0)):
            asks = []
            for number, seat in enumerate(seats):
                if position < len(seat.acting):
                    agent = seat.acting[position]
                    before = [(f"{seat.agents[i]} wrote", joint[number][i]) for i in seat.acting[:position]]
                    own = seat.observations[agent]
                    asks.append(Ask(number, agent, quote(own, before, "Write your part.") if before else own))
            for ask, answer in zip(asks, speak(asks), strict=True):
                joint[ask.seat][ask.agent] = answer
        return joint
