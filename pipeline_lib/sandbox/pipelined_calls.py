"""Pipelined calls: sent to a program before the tests make them, because the tests' source shows that they will.

They are sent together with the program, so neither side waits for the other after each call.  The program only learns
the arguments earlier: its answers are read and its time is measured when the tests make the call.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from pipeline_lib.sandbox.calls import same_arguments
from pipeline_lib.sandbox.tests_source import Planned

MAX_BYTES = 1 << 16  # sent with a program, its source included; every socket takes this much without blocking


class PipelinedCalls:
    """The calls that were sent to one program in advance.

    The program answers them until the first answer that is more than a copy, and skips the others, which the tests then
    make like any call.
    """

    def __init__(self, planned: Planned) -> None:
        self._planned = planned
        self._mispredicted = False
        self._sent: deque[tuple[bytes, bytes]] = deque()  # arguments and frames

    def requests(self, calls: int, max_bytes: int) -> bytes:
        """Return the frames of the calls after the first ``calls``, at most ``max_bytes`` of them."""
        plan = self._planned.plan
        if self._mispredicted:
            return b""
        frames = []
        for call in plan.foreseen[calls:]:
            max_bytes -= len(call[1])
            if max_bytes < 0:
                break
            frames.append(call[1])
            self._sent.append(call)
        return b"".join(frames)

    def take_if_next(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return whether the call that the tests make is the next one sent; if so, remove it from the queue."""
        if self._sent and not kwargs and same_arguments(args, self._sent[0][0]):
            self._sent.popleft()
            return True
        return False

    def mispredict(self) -> bool:
        """Return whether the program was sent calls that the tests do not make; if so, send no more in advance."""
        self._mispredicted = self._mispredicted or bool(self._sent)
        return bool(self._sent)

    def clear(self) -> None:
        """Drop the calls: the program will not answer them, or its process has ended."""
        self._sent.clear()
