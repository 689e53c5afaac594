"""Calls that are sent to a program in advance, because the text of the tests shows that they will be made.

They are sent together with the program, so that neither side waits for the other call by call.  The program only learns
the arguments earlier: its answers are read, and its time is measured, when the tests ask.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from pipeline_lib.sandbox.calls import same_arguments
from pipeline_lib.sandbox.tests_source import Planned

ROOM = 1 << 16  # bytes sent with a program, its own included; every socket takes so many at once


@dataclass(frozen=True, slots=True)
class Settled:
    """An answer that was taken over before the tests asked for it."""

    number: int
    value: Any
    error: BaseException | None


class Ahead:
    """The calls that one program knows of already, and its answers to the first of them."""

    def __init__(self, planned: Planned) -> None:
        self._planned = planned
        self._surprised = False
        self._sent: deque[tuple[bytes, bytes]] = deque()  # arguments and frames
        self._answers: deque[list[Any] | Settled] = deque()

    def requests(self, calls: int, room: int) -> bytes:
        """Return the frames of the calls that follow after ``calls`` of them, as far as ``room`` bytes hold them."""
        (plan,) = self._planned.plans
        if self._surprised or self._planned.job.mode == "inline":
            return b""
        frames = []
        for call in plan.foreseen[calls:]:
            frames.append(call[1])
            room -= len(frames[-1])
            if room < 0:
                frames.pop()
                break
            self._sent.append(call)
        return b"".join(frames)

    def made(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return whether the call that the tests make is the next of those sent, which then is none any more."""
        if self._sent and not kwargs and same_arguments(args, self._sent[0][0]):
            self._sent.popleft()
            return True
        return False

    def surprise(self) -> bool:
        """Return whether the program has been sent calls that the tests do not make; no others will be."""
        self._surprised = self._surprised or bool(self._sent)
        return bool(self._sent)

    def is_due(self) -> bool:
        """Return whether there are calls that the program answers before it can hear of anything else."""
        return len(self._answers) < len(self._sent)

    def keep(self, answer: list[Any] | Settled) -> None:
        """Keep the answer to a call that the tests have not made yet."""
        self._answers.append(answer)

    def kept(self) -> list[Any] | Settled | None:
        """Return the answer to the call that the tests make now, None if it is still to come."""
        return self._answers.popleft() if self._answers else None

    def clear(self) -> None:
        """Forget calls and answers: their process has ended."""
        self._sent.clear()
        self._answers.clear()
