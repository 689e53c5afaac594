"""The sequential-pipeline baseline: each agent reads what the agents before it wrote in this turn, and then writes."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline_lib.protocols.protocol import PromptRequest, Protocol, Sample, TurnInput, quote


class SequentialPipeline(Protocol):
    """Agents act one after the other, in acting order; the first sees only its own observation."""

    name = "sequential_pipeline"

    def act(self, inputs: Sequence[TurnInput], sample: Sample) -> list[list[str]]:
        """Prompt the first agent of each turn, then the second with the first's text, and so on."""
        joint = [[""] * len(turn.agents) for turn in inputs]
        for position in range(max((len(turn.acting) for turn in inputs), default=0)):
            requests = []
            for number, turn in enumerate(inputs):
                if position < len(turn.acting):
                    agent = turn.acting[position]
                    before = [(f"{turn.agents[i]} wrote", joint[number][i]) for i in turn.acting[:position]]
                    own = turn.observations[agent]
                    prompt = quote(own, before, "Write your part.") if before else own
                    requests.append(PromptRequest(number, agent, prompt))
            for request, answer in zip(requests, sample(requests), strict=True):
                joint[request.turn][request.agent] = answer
        return joint
