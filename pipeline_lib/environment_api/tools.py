"""Tools: what an agent may ask for within its turn, before it answers (`Environment.use_tools`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S")  # the state type


@dataclass(frozen=True, slots=True)
class ToolCall(Generic[S]):
    """What an agent wrote, which may call a tool.

    Attributes:
        state: the state in which the turn began.
        agent: number of the agent.
        texts: by number of the agent, what each wrote last in this turn, so of those that act at the same time too;
            empty for those that wrote nothing yet.
    """

    state: S
    agent: int
    texts: tuple[str, ...]

    @property
    def text(self) -> str:
        """Return what the agent itself wrote."""
        return self.texts[self.agent]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of it.

    Attributes:
        text: what the agent reads before it writes on; None if it called no tool, so that its text is its answer.
        error: why the infrastructure could not run the tool, else empty; the joint action then gets no reward.
    """

    text: str | None = None
    error: str = ""
