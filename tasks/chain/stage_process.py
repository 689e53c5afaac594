"""One stage as a child process: it is requested from DVC, its output is passed on, and it can be ended at any time."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline_lib.tracking.processes import own_process
from tasks.runtime import progress
from tasks.runtime.exit_status import REFUSED
from tasks.runtime.tracked_run import OWNER
from tasks.services.process_environment import child_environment, places
from tasks.services.processes import start, stop

_DVC_TALK = (
    "Running stage ",
    "> python -m ",
    "Updating lock file",
    "Use `dvc push`",
    "To track the changes",
    "git add",
    "To enable auto staging, run:",
    "dvc config core.autostage true",
)


class StageFailedError(RuntimeError):
    """A stage ended with an error; the message holds its last words."""


class StageProcess:
    """``dvc repro`` of a single stage.

    Attributes:
        work_s: when it has ended, what its work took, without all that is around it; None if it did not say.

    Args:
        name: the stage.
        project: where its ``dvc.yaml`` is.
        run: name of the whole run.
        variables: further environment variables.
    """

    def __init__(self, name: str, project: Path, run: str, **variables: str) -> None:
        self.name = name
        self._progress = places().home / "progress" / f"{os.getpid()}-{name}.json"
        self._progress.parent.mkdir(parents=True, exist_ok=True)
        self._progress.unlink(missing_ok=True)
        environment = child_environment(
            SYMPOSIUM_RUN=run,
            PYTHONUNBUFFERED="1",
            **{progress.FILE: str(self._progress), OWNER: own_process()},
            **variables,
        )
        # One stage without those above it, and waiting instead of failing where stages share something.
        command = [sys.executable, "-m", "dvc", "--wait-for-lock", "repro", "--single-item", name]
        self._process = start(command, environment, project, subprocess.PIPE)
        self._stopped = False
        self.work_s: float | None = None

    def wait(self, on_line: Callable[[str], None]) -> bool:
        """Pass on what the stage prints until it ends; return whether it did any work.

        Raises:
            StageFailedError: it ended with a status other than 0, or it refused what it was to look at, which DVC
                remembers as a result like any other.
        """
        last: deque[str] = deque(maxlen=15)
        worked = False
        refused = ""
        output = self._process.stdout
        assert output is not None
        for raw in output:
            line = raw.decode(errors="replace").rstrip()
            worked = worked or line.startswith("Running stage ")
            if line and not line.strip().startswith(_DVC_TALK):
                last.append(line)
                refused = line if line.startswith(REFUSED) else refused
                on_line(line)
        status = self._process.wait()
        self.work_s = self.said().get("work_s")
        self._progress.unlink(missing_ok=True)
        if self._stopped:
            raise StageFailedError(f"stage {self.name} was stopped; the same command continues it")
        if status != 0:
            raise StageFailedError(
                f"stage {self.name} failed (status {status}); the end of its output:\n" + "\n".join(last)
            )
        if refused:
            raise StageFailedError(f"stage {self.name} {refused}")
        return worked

    def share(self) -> float:
        """Return how much of the stage is done, 0 to 1, as it says itself; 0 while it says nothing."""
        with contextlib.suppress(KeyError, ZeroDivisionError):
            said = self.said()
            return min(1.0, said["done"] / said["total"])
        return 0.0

    def said(self) -> dict[str, Any]:
        """Return what the stage says of its progress (`tasks.runtime.progress`); empty while it says nothing."""
        with contextlib.suppress(OSError, ValueError):
            return dict(json.loads(self._progress.read_text(encoding="utf-8")))
        return {}

    def stop(self, timeout_s: float) -> None:
        """End the stage and everything below it; it continues from its last checkpoint when run again."""
        self._stopped = True
        stop(self._process, timeout_s)
        self._progress.unlink(missing_ok=True)
