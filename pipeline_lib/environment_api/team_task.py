"""Common methods of tasks whose setting ``team`` is ``single`` for one agent that does the work of all."""

from __future__ import annotations

from typing import Any

from pipeline_lib.environment_api.task import Task


class TeamTask(Task):
    """A task for agents that act at the same time, or for one; a further turn is a further attempt."""

    retries = True

    def single_agent(self, settings: Any) -> Any:
        """Return the form in which one agent does the work of all."""
        return settings.model_copy(update={"team": "single"})

    def unsuitable(self, protocol: str, settings: Any) -> str:
        """Return why a protocol does not suit: it needs several agents, or a second turn."""
        if settings.team == "single":
            return "environment.team is single, and a single agent has no other agents to read"
        if protocol == "naive_concatenation" and getattr(settings, "turns", 1) == 1:
            turn = "environment.turns 1" if hasattr(settings, "turns") else "a single turn"
            return f"with {turn} it is the same as the base"
        return ""

    def notes(self, settings: Any) -> list[str]:
        """Return a note if the base equals a baseline."""
        if settings.team != "single" and getattr(settings, "turns", 1) == 1:
            return ["With one turn, the base is the same as the baseline naive concatenation."]
        return []
