"""Decides when a program has taken too long to answer, or too much of anything else."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pipeline_lib.sandbox.inside import scratch

if TYPE_CHECKING:
    from pipeline_lib.sandbox.proxy import Program

_FIRST_LOOK_S = 0.05  # answers quicker than this cost no look at the CPU clock
_LONGEST_NAP_S = 0.25
_SHORTEST_NAP_S = 0.002
_WALL_PER_CPU = 3.0  # seconds of wall clock for each second of CPU that an answer may take
_LEAST_GRACE_S = 0.005


class Watch:
    """Follows one exchange with a program, which may take ``cpu_s`` seconds of its CPU time."""

    def __init__(self, program: Program, cpu_s: float) -> None:
        self.program = program
        self.cpu_s = cpu_s
        self.started = time.monotonic()
        self.wall_end = min(self.started + _WALL_PER_CPU * cpu_s, program.wall_end)
        first = min(_FIRST_LOOK_S, cpu_s / 2, max(self.wall_end - self.started, _SHORTEST_NAP_S))
        self.next_look = self.started + first
        self.base: float | None = None

    def nap_ms(self) -> float:
        """Return how long to wait for an answer before looking at the clocks, in milliseconds."""
        return max(0.0, self.next_look - time.monotonic()) * 1000 + 0.5

    def look(self) -> tuple[str, str] | None:
        """Return the event if the program has used up what it may use, else None."""
        now = time.monotonic()
        if now < self.next_look:
            return None
        program, limits = self.program, self.program.limits
        load = program.worker.load()
        if self.base is None:
            self.base = max(0.0, load.cpu_s - (now - self.started))
        used, total = load.cpu_s - self.base, program.cpu_s + load.cpu_s
        if used >= self.cpu_s:
            return "timeout", f"a call took more than {self.cpu_s:g} s of CPU time"
        if total >= limits.cpu_s:
            return "timeout", f"the program took more than {limits.cpu_s:g} s of CPU time"
        if load.entries > scratch.MOST_ENTRIES or load.scratch_mb > 1.5 * limits.file_mb:
            return "output_limit", "the program wrote more temporary files than it may"
        if now >= self.wall_end:
            grace = program.grace()
            if grace < _LEAST_GRACE_S:
                return "timeout", f"no answer within {now - self.started:.1f} s"
            self.wall_end += grace
        rest = min(self.cpu_s - used, limits.cpu_s - total, self.wall_end - now)
        self.next_look = now + min(max(rest, _SHORTEST_NAP_S), _LONGEST_NAP_S)
        return None
