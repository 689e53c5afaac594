"""A job in the broker: the workers that it has lost, and the decision whether the job or something else killed them.

No action of a program may look like a failure of the sandbox.  If a worker is killed, the cause is unknown, so its job
is tried again.  A job that loses several workers one after the other must then run alone, while other workers are idle.
If it loses its worker again and again and none of the idle ones is killed, the job is the cause.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

_DEATHS = 2  # workers a job may crash before its verdict is a crash
_SUSPICION = 3  # workers a job may lose by a kill before it has to run alone
_ALONE = 3  # workers it may lose while it runs alone
_LOSSES = 100  # workers a job may lose while others are killed, too, before it ends as an infra_error
_STARTS = 8  # failed starts of a worker that a job needs before it ends as an infra_error


@dataclass(slots=True)
class Entry:
    """A job in the broker.

    Attributes:
        number: the client's.
        body: the job, not decoded.
        wall_s: seconds it may take.
        attempts: times it was given to a judge.
        deaths: workers it crashed.
        losses: workers it lost to a SIGKILL, which no known action of a program can cause.
        suspicion: losses while the program ran and nothing else is known to have been killed.
        alone: losses while no other program ran.
        unstarted: failed starts of a worker for it.
        first_lost: when it first lost a worker, on the monotonic clock.
        late: it has timed out once; the next timeout is final.
        avoid: the slot in which it last lost a worker.
    """

    number: int
    body: bytes
    wall_s: float
    attempts: int = 0
    deaths: int = 0
    losses: int = 0
    suspicion: int = 0
    alone: int = 0
    unstarted: int = 0
    first_lost: float = 0.0
    late: bool = False
    avoid: int = -1

    @property
    def is_suspect(self) -> bool:
        """Return whether it has to run alone."""
        return self.suspicion >= _SUSPICION

    def clear(self) -> None:
        """Suspect the job no longer: workers without a program are killed, too."""
        self.suspicion = self.alone = 0

    def lost(self, killed: bool, reason: str, killed_idle: float) -> tuple[str, str] | None:
        """Count a worker that died with the job's program; return status and error if the job must end.

        Args:
            killed: no known action of a program can cause the death.
            reason: how it died.
            killed_idle: when a worker without a program was last killed, on the monotonic clock.
        """
        if not killed:
            self.deaths += 1
        else:
            self.losses += 1
            self._suspect(killed_idle)
        if self.deaths >= _DEATHS:
            return "crash", reason
        if self.alone >= _ALONE:
            return "crash", f"{reason}: {self.losses} times, and nothing else of the sandbox was killed"
        if self.losses >= _LOSSES:
            return "infra_error", f"{reason}: {self.losses} times, as were workers without a program"
        return None

    def lost_untouched(self, started: bool, reason: str) -> tuple[str, str] | None:
        """Count a worker that died before it had the program, or, if not ``started``, could not be started."""
        self.losses += 1
        self.unstarted += not started
        if self.losses >= _LOSSES or self.unstarted >= _STARTS:
            return "infra_error", f"{reason}: {self.losses} times"
        return None

    def _suspect(self, killed_idle: float) -> None:
        if self.suspicion and killed_idle > self.first_lost:
            self.clear()
            return
        if self.is_suspect:
            self.alone += 1
        elif self.suspicion == 0:
            self.first_lost = time.monotonic()
        self.suspicion += 1
