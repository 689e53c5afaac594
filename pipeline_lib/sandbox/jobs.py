"""The input and output of the sandbox: jobs and verdicts."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

SLOTS_PER_CORE = 4
"""Programs that run at the same time where nobody says how many."""


class Status(StrEnum):
    """How a program ended.  ``infra_error`` is the only status that the program did not cause; it gives no reward."""

    PASSED = "passed"  # the hidden tests ran to their end, and every case held
    FAILED = "failed"  # at least one case failed
    TIMEOUT = "timeout"
    OOM = "oom"
    CRASH = "crash"  # the process died (signal), or the job killed two workers
    VIOLATION = "violation"  # a forbidden system call
    LOAD_ERROR = "load_error"  # syntax error, import error, or the entry point is missing
    OUTPUT_LIMIT = "output_limit"  # a reply larger or deeper than the limits, or malformed; too many files
    INFRA_ERROR = "infra_error"  # the sandbox itself failed


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program may use.  Seconds, mebibytes, kibibytes and counts; all positive."""

    cpu_s: float = 4.0  #: CPU seconds for the whole program
    call_cpu_s: float = 2.0  #: CPU seconds for one call of the entry point
    wall_s: float = 12.0  #: wall-clock back-stop for the whole program
    memory_mb: int = 512  #: address space
    processes: int = 64  #: threads (a program cannot create processes)
    open_files: int = 64  #: descriptors
    file_mb: int = 16  #: largest file, and size of the temporary file system
    reply_kb: int = 256  #: largest value returned by one call
    error_kb: int = 2  #: longest error text kept
    code_kb: int = 256  #: longest program accepted


@dataclass(frozen=True, slots=True)
class Job:
    """One program and the tests it is judged by."""

    id: str  #: chosen by the caller; comes back on the verdict
    code: str  #: the candidate's source, untrusted
    tests: str  #: source of ``def check(candidate): ...`` with asserts, trusted
    entry_point: str  #: the function that ``candidate`` stands for
    #: Trusted source that both the candidate and the tests may use (imports, functions of the prompt).
    prelude: str = ""
    #: Determines the random numbers of ``random`` and numpy in the program and, independently, in the tests.
    seed: int = 0
    limits: Limits | None = None  #: overrides of the executor's limits
    #: The verdict is shown to those who write programs.  The program runs in a jail that only programs of such jobs
    #: have used, so nothing in the verdict comes from hidden tests of other jobs.
    shown: bool = False
    collect: bool = False  #: run no program, but find the ``unittest`` tests; see `backend.Planner`


@dataclass(frozen=True, slots=True)
class Case:
    """The result of one assert: ``ok``, ``fail``, ``timeout``, ``error`` or ``skipped``, and a short message.

    The judge writes the message about values that the candidate returned: display it, never parse it.
    """

    index: int
    result: str
    message: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a program under its tests.

    ``fraction`` is 1.0 if and only if ``status`` is ``passed``; creating any other verdict raises ValueError.
    ``passed`` and ``total`` count cases; ``total`` is fixed by the tests, never by the candidate.
    """

    id: str
    status: Status
    passed: int
    total: int
    cases: tuple[Case, ...] = ()
    error: str = ""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_mb: float = 0.0
    attempts: int = 1
    backend: str = ""
    worker: str = ""
    extra: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.status is Status.PASSED) != (0 < self.passed == self.total) or not 0 <= self.passed <= self.total:
            raise ValueError(f"a verdict {self.status.value} cannot have passed {self.passed} of {self.total} cases")

    @property
    def fraction(self) -> float | None:
        """Return passed / total in [0, 1], 1.0 for status ``passed`` alone; None for ``infra_error`` or no cases."""
        if self.status is Status.INFRA_ERROR or self.total == 0:
            return None
        return self.passed / self.total
