"""Output of stages: the full output in one file per stage, and a readable part for the terminal."""

from __future__ import annotations

import logging
import re
from types import TracebackType
from typing import Self

from rich.console import Console

from tasks.services.process_environment import places

# A stage is a separate process.  Time and run name in its lines are removed, because the chain's own log adds them.
_PREFIX = re.compile(r"^\d\d:\d\d:\d\d\.\d{3} \| (?P<level>[A-Z]+) *\| (?:(?:Flow|Task) run '[^']*'|[\w.]+) - ")
_HOUSEKEEPING = re.compile(
    r"Beginning (flow|subflow) run |View at https?://|Finished in state (Completed|Cached)\(|Created task run "
    r"|(Starting|Stopping) temporary server on |.*\d+%\|.*it/s\]"
)

# The chain reports the reason of a failure once, at its end.
_FAILURE = re.compile(
    r"Finished in state (Failed|Crashed)|(Task|Flow) run failed |Encountered exception during execution"
)


def readable(line: str) -> str:
    """Return a line of a stage's output in readable form, or an empty text for Prefect's housekeeping messages."""
    line = line.rpartition("\r")[2]  # the final state of a redrawn line
    found = _PREFIX.match(line)
    text = line[found.end() :] if found else line
    if _HOUSEKEEPING.match(text):
        return ""
    level = found["level"] if found else "INFO"
    return text if level in ("INFO", "DEBUG") else f"{level.lower()}: {text}"


def is_housekeeping(text: str) -> bool:
    """Return whether a message of Prefect reports only that a run began or ended normally."""
    return bool(_HOUSEKEEPING.match(text))


class StageLog:
    """The file with the full output of one stage; a context manager.

    Attributes:
        path: ``.symposium/logs/<run>/<stage>.log``; later runs of the stage append to it.
    """

    def __init__(self, run: str, stage: str) -> None:
        self.path = places().home / "logs" / run.replace("/", "-") / f"{stage}.log"

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("a", encoding="utf-8", errors="replace")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, line: str) -> None:
        """Add a line."""
        self._file.write(f"{line}\n")
        self._file.flush()


class PlainFormatter(logging.Formatter):
    """One line per message: time, stage, text."""

    def __init__(self) -> None:
        super().__init__(datefmt="%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, followed by the traceback if there is one."""
        stage = getattr(record, "task_run_name", "")
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        line = f"{self.formatTime(record, self.datefmt)}  {stage:<14}  {level}{record.getMessage()}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def log_plain_lines(least: int = logging.INFO) -> None:
    """Reduce Prefect's log in this process to plain lines.

    Args:
        least: lowest level that is shown.
    """
    # Prefect loads for a second; programs read their arguments before.
    from prefect.logging.configuration import setup_logging

    def wanted(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        told = _FAILURE.match(text) and not record.exc_info  # only a defect still has its traceback
        return record.levelno >= least and not is_housekeeping(text) and not told

    setup_logging()  # the first flow would do this and replace the handlers
    console = Console(stderr=True)  # Prefect's console has only its own styles
    for handler in logging.getLogger().handlers:
        if hasattr(handler, "console"):
            handler.console = console
            handler.setFormatter(PlainFormatter())
            handler.addFilter(wanted)
