"""Common methods of tasks with the setting ``team`` (pair or single), and ``turns`` if there can be several."""

from __future__ import annotations

from typing import Any

from pipeline_lib.environment_api.task import Task


class PairTask(Task):
    """A task for two agents that act at the same time, or for one agent; a further turn is a further attempt."""

    retries = True

    def single_agent(self, settings: Any) -> Any:
        """Return the form in which one agent does the work of both."""
        return settings.model_copy(update={"team": "single"})

    def unsuitable(self, protocol: str, settings: Any) -> str:
        """Return why a protocol does not suit: it needs two agents, or a second turn."""
        if settings.team == "single":
            return "environment.team is single, and a single agent has no other agents to read"
        if protocol == "naive_concatenation" and getattr(settings, "turns", 1) == 1:
            return "with environment.turns 1 it is the same as the base"
        return ""

    def max_acting(self, params: Any) -> int:
        """Return the size of the team."""
        return 1 if params.environment.team == "single" else 2

    def notes(self, settings: Any) -> list[str]:
        """Return a note if the base equals a baseline."""
        if settings.team == "pair" and getattr(settings, "turns", 1) == 1:
            return ["With one turn, the base is the same as the baseline naive concatenation."]
        return []
