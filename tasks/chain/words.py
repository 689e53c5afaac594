"""What stages say: all of it in a file per stage, and what people want to read, without what only programs write."""

from __future__ import annotations

import logging
import re
from types import TracebackType
from typing import Self

from rich.console import Console

from tasks.services.process_environment import places

# A stage is a program of its own: its time, and which of its runs speaks, are said again by who passes it on.
_PREFIX = re.compile(r"^\d\d:\d\d:\d\d\.\d{3} \| (?P<level>[A-Z]+) *\| (?:(?:Flow|Task) run '[^']*'|prefect\S*) - ")
_HOUSEKEEPING = re.compile(
    r"Beginning (flow|subflow) run |View at https?://|Finished in state (Completed|Cached)\(|Created task run "
    r"|(Starting|Stopping) temporary server on |.*\d+%\|.*it/s\]"
)

# Whoever runs the flow says in the end why it failed, once.
_FAILURE = re.compile(
    r"Finished in state (Failed|Crashed)|(Task|Flow) run failed |Encountered exception during execution"
)


def told(line: str) -> str:
    """Return a stage's line as people shall read it, or an empty text where it is housekeeping."""
    line = line.rpartition("\r")[2]  # of a line that was drawn anew, what stands there in the end
    found = _PREFIX.match(line)
    text = line[found.end() :] if found else line
    if _HOUSEKEEPING.match(text):
        return ""
    level = found["level"] if found else "INFO"
    return text if level in ("INFO", "DEBUG") else f"{level.lower()}: {text}"


def is_housekeeping(text: str) -> bool:
    """Return whether a message of Prefect says only that a run began or ended as it should."""
    return bool(_HOUSEKEEPING.match(text))


class StageLog:
    """The file that keeps all words of one stage; a context manager.

    Attributes:
        path: ``.symposium/logs/<run>/<stage>.log``; the stage's last words come last, also over several runs.
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

    def keep(self, line: str) -> None:
        """Add a line."""
        self._file.write(f"{line}\n")
        self._file.flush()


class PlainFormatter(logging.Formatter):
    """One line a message: the time, the stage that says it, and what it says."""

    def __init__(self) -> None:
        super().__init__(datefmt="%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; with a traceback, where there is one."""
        stage = getattr(record, "task_run_name", "")
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        line = f"{self.formatTime(record, self.datefmt)}  {stage:<14}  {level}{record.getMessage()}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def on_this_terminal(least: int = logging.INFO) -> None:
    """Have Prefect's log in this process say only what people want to read, in plain lines.

    Args:
        least: level below which nothing is said.
    """
    from prefect.logging.configuration import setup_logging

    def wanted(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        return record.levelno >= least and not is_housekeeping(text) and not _FAILURE.match(text)

    setup_logging()  # else the first flow does so, and has handlers of its own
    console = Console(stderr=True)  # Prefect's own knows only its own styles
    for handler in logging.getLogger().handlers:
        if hasattr(handler, "console"):
            handler.console = console
            handler.setFormatter(PlainFormatter())
            handler.addFilter(wanted)
