"""One stage as a child process: requested from DVC, with its output forwarded, and stoppable at any time."""

import contextlib
import json
import logging
import os
import re
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console

from pipeline_lib.storage import process_label
from pipeline_lib.tracking.processes import own_process
from tasks.runtime import progress
from tasks.runtime.exit_status import ERROR, INTERRUPTED, REFUSED, SEE_ABOVE
from tasks.runtime.tracked_run import OWNER
from tasks.runtime.training_copies import SHARED
from tasks.services.process_environment import child_environment, places
from tasks.services.processes import ended, kernel_kills, start, stop

_DVC_TALK = (
    "Running stage ",
    "> python -m ",
    "Generating lock file",
    "Updating lock file",
    "Use `dvc push`",
    "To track the changes",
    "git add",
    "To enable auto staging, run:",
    "dvc config core.autostage true",
)


# The stage's own message, which stands above it, says why.
_ONLY_THE_STATUS = re.compile(r"ERROR: failed to reproduce '[^']*': failed to run: .*, exited with (?P<status>-?\d+)$")

# DVC prints this and ends with status 0.
_NOT_STORED = re.compile(r"ERROR: failed to transfer '[^']*' - (?P<why>.*)")

# The lines below them are indented or empty, up to the one that names the error.
_TRACEBACK = re.compile(
    r"Encountered exception during execution: |Traceback \(most recent call last\):"
    r"|^During handling of the above exception, |^The above exception was the direct cause "
)


class StageFailedError(RuntimeError):
    """A stage ended with an error; the message contains its explanation, or the end of its output."""


class StageProcess:
    """``dvc repro`` of a single stage, in the folder with ``dvc.yaml``, with further environment variables.

    With ``pull``, results that the run cache knows come from the remote if they are not here, and if it answers.

    Attributes:
        work_s: after its end, the seconds of its work without starting up; None if it did not report them.
    """

    def __init__(self, name: str, project: Path, run: str, pull: bool = False, **variables: str) -> None:
        self.name = name
        self._progress = places().home / "progress" / f"{process_label()}-{name}.json"
        self._progress.parent.mkdir(parents=True, exist_ok=True)
        self._progress.unlink(missing_ok=True)
        self._project, self._pull = project, pull
        self._environment = child_environment(
            SYMPOSIUM_RUN=run,
            PYTHONUNBUFFERED="1",
            **{progress.FILE: str(self._progress), OWNER: own_process()},
            **({SHARED: "1"} if pull else {}),
            **variables,
        )
        self._stopped = False
        self._kills = kernel_kills()
        self.work_s: float | None = None
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        # One stage without its dependencies; DVC waits for locks of stages that run in parallel instead of failing.
        command = [sys.executable, "-m", "dvc", "--wait-for-lock", "repro", "--single-item", self.name]
        command += ["--pull"] if self._pull else []
        return start(command, self._environment, self._project, subprocess.PIPE)

    def wait(self, on_line: Callable[[str, bool], None]) -> bool:
        """Forward the stage's output until it ends; return whether it did any work.

        Args:
            on_line: called with each line, and whether a terminal can do without it: it is part of the message that
                the error will contain, or of a traceback, or this run says the same.

        Raises:
            StageFailedError: it ended with a status other than 0, or with a refusal, which DVC stores as a result, or
                DVC could not store what it made.
        """
        last: deque[str] = deque(maxlen=15)
        explanation: list[str] = []
        worked = False
        exited: int | None = None
        refused = not_stored = ""
        in_traceback = False
        output = self._process.stdout
        assert output is not None
        for raw in output:
            line = raw.decode(errors="replace").rstrip()
            worked = worked or line.startswith("Running stage ")
            if status_of_work := _ONLY_THE_STATUS.match(line):
                exited = int(status_of_work["status"])
            elif line and not line.strip().startswith(_DVC_TALK):
                last.append(line)
                refused = line if line.startswith(REFUSED) else refused
                if explanation or line.startswith(ERROR):
                    explanation.append(line)
                # Before the work it is something that did not come from the remote.
                began, failed = _TRACEBACK.search(line) is not None, _NOT_STORED.match(line) if worked else None
                not_stored = not_stored or (failed["why"] if failed else "")
                told = bool(explanation or failed) or line.startswith((REFUSED, INTERRUPTED))
                on_line(line, told or began or in_traceback)
                in_traceback = began or (in_traceback and line.startswith(" "))
        status, held = self._end()
        if status != 0 and self._pull and not worked and not self._stopped:  # the remote does not answer
            on_line("warning: nothing comes from the remote now, so what is not here is computed here", False)
            self._pull = False
            self._process = self._start()
            if self._stopped:  # meanwhile
                stop(self._process, 0.0)
            return self.wait(on_line)
        self.work_s = self.progress().get("work_s")
        self._progress.unlink(missing_ok=True)
        if self._stopped:
            raise StageFailedError(f"stage {self.name} was stopped; the same command continues it")
        if status != 0 and explanation:
            text = "\n".join(explanation).removeprefix(ERROR).removesuffix(SEE_ABOVE)
            raise StageFailedError(f"stage {self.name} failed: {text}")
        if status != 0:
            how = ended(status if exited is None else exited, held, kernel_kills() > self._kills)
            raise StageFailedError(f"stage {self.name} failed ({how}); the end of its output:\n" + "\n".join(last))
        if not_stored:
            raise StageFailedError(
                f"stage {self.name} did its work, but DVC cannot store the results in its cache: {not_stored}"
            )
        if refused:
            raise StageFailedError(f"stage {self.name} {refused}")
        return worked

    def _end(self) -> tuple[int, int]:
        """Return DVC's exit status, and the most bytes that a process below it held, once it has ended."""
        try:
            _, status, usage = os.wait4(self._process.pid, 0)
        except ChildProcessError:  # `stop` has met the end first
            return self._process.wait(), 0
        self._process.returncode = os.waitstatus_to_exitcode(status)
        return self._process.returncode, usage.ru_maxrss << 10

    def share(self) -> float:
        """Return the reported share of the stage that is done, 0 to 1; 0 if it reports nothing."""
        return float(self.progress().get("share", 0.0))

    def progress(self) -> dict[str, Any]:
        """Return the stage's last report of its progress (`tasks.runtime.progress`); empty if there is none.

        ``at`` is the time of the report on the clock `time.monotonic`, which all processes of a machine share.
        """
        with contextlib.suppress(OSError, ValueError):
            return dict(json.loads(self._progress.read_text(encoding="utf-8")))
        return {}

    def stop(self, timeout_s: float) -> None:
        """End the stage and everything below it; it continues from its last checkpoint when run again."""
        self._stopped = True
        stop(self._process, timeout_s)
        self._progress.unlink(missing_ok=True)


# A stage is a separate process.  Time and run name in its lines are removed, because the chain's own log adds them.
_PREFIX = re.compile(r"^\d\d:\d\d:\d\d\.\d{3} \| (?P<level>[A-Z]+) *\| (?:(?:Flow|Task) run '[^']*'|[\w.]+) - ")
_HOUSEKEEPING = re.compile(
    r"Beginning (flow|subflow) run |View at https?://|Finished in state (Completed|Cached|Running)\(|Created task run "
    r"|(Starting|Stopping) temporary server on |.*\d+%\|.*it/s\]"
)

# The chain reports the reason of a failure once, at its end.
_FAILURE = re.compile(
    r"Finished in state (Failed|Crashed)|(Task|Flow) run failed |Encountered exception during execution"
)


def readable(line: str) -> str:
    """Return a line of a stage's output in readable form, or an empty text for Prefect's housekeeping messages."""
    line = line.rpartition("\r")[2]  # the final state of a redrawn line
    prefix = _PREFIX.match(line)
    text = line[prefix.end() :] if prefix else line
    if _HOUSEKEEPING.match(text):
        return ""
    level = prefix["level"] if prefix else "INFO"
    return text if level in ("INFO", "DEBUG") else f"{level.lower()}: {text}"


def is_housekeeping(text: str) -> bool:
    """Return whether a message of Prefect reports only that a run began or ended normally."""
    return bool(_HOUSEKEEPING.match(text))


class StageLog:
    """The file with the full output of one stage, to which later runs of the stage append; a context manager."""

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
    """Reduce Prefect's log in this process to plain lines of at least this level."""
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
