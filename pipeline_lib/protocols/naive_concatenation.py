"""The naive-concatenation baseline: agents act once, independently, and their texts are joined unchanged."""

from __future__ import annotations

from pipeline_lib.protocols.decentralised import Decentralised


class NaiveConcatenation(Decentralised):
    """One decentralised turn: agents get no feedback and revise nothing.

    The environment joins the texts in every protocol, so with one turn this equals `Decentralised`.  It is a baseline
    because it is played by the untrained base.
    """

    name = "naive_concatenation"
    turns = 1
