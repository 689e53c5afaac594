"""The discussion baseline: all agents write, read what the others wrote, and write again."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline_lib.protocols.protocol import Protocol, Sample, TurnInput, all_at_once, gather, quote


class OneRoundDiscussion(Protocol):
    """Two rounds within each turn; only the second is executed and rewarded, but the tokens of both count."""

    name = "one_round_discussion"

    def act(self, inputs: Sequence[TurnInput], sample: Sample) -> list[list[str]]:
        """Prompt all agents, then prompt them again with the first texts of all."""
        first = all_at_once(inputs)
        drafts = gather(inputs, first, sample(first))
        second = []
        for request in first:
            turn, draft = inputs[request.turn], drafts[request.turn]
            others = [(f"{turn.agents[i]} wrote", draft[i]) for i in turn.acting if i != request.agent]
            said = [("You wrote", draft[request.agent]), *others]
            prompt = quote(request.prompt, said, "Write your part again, so that all fit.")
            second.append(request._replace(prompt=prompt))
        return gather(inputs, second, sample(second))
