"""The record of one episode: a row of the long table from which all statistics are computed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """The record of one episode."""

    problem: str  #: id of the problem
    family: str  #: cluster of the problem (the unit that is resampled)
    #: Number of the episode among those of its problem, from 0; with the same sampling seed, sample j of a problem is
    #: paired between any two teams.
    sample: int
    reward: float | None  #: undiscounted sum of the turns' rewards, or None when the infrastructure failed
    turns: int  #: turns played
    terms: Mapping[str, float]  #: reward terms summed over turns
    metrics: Mapping[str, float]  #: the last turn's metrics (``tests_passed``, ``all_passed``, ``cooperation``, ...)
    tokens: int  #: tokens sampled by all agents
    details: Mapping[str, Any] = field(default_factory=dict)  #: JSON-like facts for the report (scheme, status)
    #: Reward and metrics of every turn, where turns are attempts at the same thing and there were several; else empty.
    attempts: Sequence[Mapping[str, float]] = ()
    #: Digest of all that the agents wrote, without white space at the ends; empty: unknown.
    wrote: str = ""
    #: Transcript of the episode (`pipeline_lib.evaluation.run`), kept on request; else None.
    shown: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the record as a JSON object, one key per attribute; empty ones of the last three are left out."""
        row = dataclasses.asdict(self)
        return {key: value for key, value in row.items() if value or key not in ("attempts", "wrote", "shown")}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> EpisodeRecord:
        """Rebuild a record from `to_json`; unknown or missing keys raise TypeError."""
        return cls(**value)
