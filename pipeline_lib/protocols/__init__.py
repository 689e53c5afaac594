"""Protocols: how a team produces a joint action; `make_protocol` finds them by name."""

from __future__ import annotations

from pipeline_lib.protocols.protocol import (
    Decentralised,
    NaiveConcatenation,
    OneRoundDiscussion,
    PromptRequest,
    Protocol,
    Sample,
    SequentialPipeline,
    SingleModel,
    TurnInput,
)

PROTOCOLS: dict[str, type[Protocol]] = {
    protocol.name: protocol
    for protocol in (Decentralised, SingleModel, NaiveConcatenation, SequentialPipeline, OneRoundDiscussion)
}

__all__ = ["PROTOCOLS", "PromptRequest", "Protocol", "Sample", "TurnInput", "make_protocol"]


def make_protocol(name: str) -> Protocol:
    """Return the protocol called ``name``; raises ValueError, which lists those there are, if there is none."""
    if name not in PROTOCOLS:
        raise ValueError(f"unknown protocol {name!r}; accepted: {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]()
