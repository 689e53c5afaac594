"""The naive-concatenation baseline: agents act once, independently, and their texts are joined unchanged."""

from __future__ import annotations

from pipeline_lib.protocols.decentralised import Decentralised


class NaiveConcatenation(Decentralised):
    """One decentralised turn and no more: no feedback is read and nothing is revised.

    Putting the texts together is the environment's affair in every protocol, so in an environment of one turn this
    is the same as `Decentralised`; what makes it a baseline is a team that was not trained to work together.
    """

    name = "naive_concatenation"
    turns = 1
