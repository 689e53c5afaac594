"""Progress of the work and the remaining time, for the terminal, the Prefect UI and the parent process.

Long work calls `Progress.update`, which takes microseconds.  Drawing and messages to Prefect happen a few times a
second at most; the latter in a separate thread, so that a slow server delays nothing.  In a terminal there is a bar;
elsewhere (pipes, CI) a plain line from time to time.  The estimate assumes that the remaining work is as fast as the
work of this process so far; work that was already finished when a run is resumed does not count.
"""

import contextvars
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from rich.console import Console
from rich.errors import MissingStyle
from rich.progress import BarColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as Bar
from rich.theme import Theme

from pipeline_lib.storage import write_text
from tasks.runtime.exit_status import was_interrupted

log = logging.getLogger("symposium.showing")

FILE = "SYMPOSIUM_PROGRESS"
"""Environment variable: a file to keep the newest progress in, for the process that started this one."""

_DRAW_S = 0.2
_FILE_S = 0.5
_LINE_S = 10.0
_POST_S = 3.0
_LONG_S = 5.0


class Estimate:
    """Seconds that remain, from the pace since the first call, or since a new part of the work began to count anew."""

    def __init__(self) -> None:
        self._started: tuple[float, int] | None = None
        self._last = 0

    def remaining_s(self, done: int, total: int, now: float) -> float | None:
        """Return the seconds left, or None while nothing was done yet."""
        if self._started is None or done < self._last:
            self._started = (now, done)
        self._last = done
        began, first = self._started
        if done >= total:
            return 0.0
        if done <= first or now <= began:
            return None
        return (now - began) / (done - first) * (total - done)


class Progress:
    """Progress of one stage; a context manager.

    Args:
        title: display name of the work.
        key: key of the Prefect artifact (lowercase letters, digits, dashes); empty: no artifact.
        own_estimate: False if the texts contain the remaining time, and the units are per cent.
        console: the output; default: the console of Prefect's log, so that lines appear above the bar.
    """

    def __init__(self, title: str, key: str = "", own_estimate: bool = True, console: Console | None = None) -> None:
        self.title = title
        self._own_estimate = own_estimate
        self._console = console or shared_console()
        self._file = Path(os.environ[FILE]) if os.environ.get(FILE) else None
        self._estimate = Estimate()
        self._drawn = self._written = self._lined = -1e9
        self._shown = ""
        self._warning = _WarnOnce()
        self._bar: Bar | None = None
        self._post = _Artifact(key, title) if key else None
        self._done, self._total = 0, 1
        self._parts: Sequence[float] = (1.0,)
        self._part = 0
        self._call = _Call()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.fields[left]}"),
            )
            self._bar = Bar(*columns, console=self._console, auto_refresh=False)
            self._bar.add_task(self.title, total=None, left="")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.refresh()
            self._bar.stop()
        if self._post:
            if error is None and self._post.latest[0] < 100.0:
                self._post.latest = (100.0, "done")
            self._post.close(1.0 if error is not None and was_interrupted(error) else 5.0)

    def expect_parts(self, times: Sequence[float]) -> None:
        """Say that the work has parts, each of which counts from 0 on, and what they take relative to each other.

        The parent process is told the share of the whole.
        """
        self._parts, self._part = times, 0

    def update(self, done: int, total: int, text: str = "") -> None:
        """Report that ``done`` of ``total`` units are finished; ``text`` describes the current work."""
        if done == 0 < self._done:
            self._part = min(self._part + 1, len(self._parts) - 1)
        self._done, self._total = done, total
        self._show(done, total, text, time.monotonic())

    def _show(self, done: int, total: int, text: str, now: float) -> None:
        remaining = self._estimate.remaining_s(done, total, now) if self._own_estimate else None
        final = done >= total
        share = min(done / total, 1.0) if total > 0 else 1.0
        left = "" if final else ("" if remaining is None else f"{duration(remaining)} left")
        if self._bar and (final or now - self._drawn >= _DRAW_S):
            self._drawn = now
            self._bar.update(
                self._bar.task_ids[0], completed=done, total=total, left="  ".join(filter(None, (left, text)))
            )
            self._bar.refresh()
        elif not self._bar and (final or now - self._lined >= _LINE_S):
            self._lined = now
            line = "  ".join(filter(None, (f"{self.title}:{self._count(done, total)}", f"{share:4.0%}", left, text)))
            if line != self._shown:
                self._shown = line
                self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        if self._file and (final or now - self._written >= _FILE_S):
            self._written = now
            content = {"title": self.title, "done": done, "total": total, "text": text, "remaining_s": remaining}
            before = sum(self._parts[: self._part])
            content["share"] = (before + share * self._parts[self._part]) / sum(self._parts)
            self._write(content | {"at": now})
        if self._post:
            description = "  ".join(filter(None, (self._count(done, total).strip(), left, text)))
            self._post.latest = (100.0 * share, description)

    def sampling(self, finished: int, actions: int, tokens: int, share: float) -> None:
        """Show how far a call of an engine is (`pipeline_lib.sampling_progress`), if it takes longer than `_LONG_S`."""
        now = time.monotonic()
        if (left := self._call.left_s(share, now)) is None:
            return
        text = f"sampling: {finished} of {actions} actions, {tokens} tokens"
        if left:
            text += f"  at most {duration(left)} left"
        self._show(self._done, self._total, text, now)

    def _count(self, done: int, total: int) -> str:
        """Return how many units are done; empty if the units are per cent, which are shown anyway."""
        return f" {done}/{total}" if self._own_estimate else ""

    def worked(self, seconds: float) -> None:
        """Report the seconds of the work, without starting up, to the parent process."""
        if self._file:
            self._write({"title": self.title, "done": 1, "total": 1, "share": 1.0, "work_s": seconds})

    def _write(self, content: Mapping[str, Any]) -> None:
        """Report to the parent process; an error here must not fail the work."""
        assert self._file is not None
        try:
            write_text(self._file, json.dumps(content))
        except OSError as error:
            self._warning.log(f"cannot write progress to {self._file}", error)

    __call__ = update


class _Call:
    """One call of an engine after the other, told apart by their shares, which only grow within a call."""

    def __init__(self) -> None:
        self._began, self._share = 0.0, 1.0

    def left_s(self, share: float, now: float) -> float | None:
        """Return the seconds that the call has left at most; None if it has not been long."""
        if share < self._share or self._share >= 1.0:
            self._began = now
        self._share = share
        took = now - self._began
        if took < _LONG_S:
            return None
        return took / share * (1 - share) if share > 0 else 0.0


class _WarnOnce:
    """Logs only the first of repeated errors."""

    def __init__(self) -> None:
        self._logged = False

    def log(self, what: str, error: Exception) -> None:
        if not self._logged:
            self._logged = True
            log.warning("%s (%s: %s); the stage continues, and this is tried again", what, type(error).__name__, error)


class _Artifact:
    """A Prefect progress artifact, written from a thread: the newest value, every few seconds."""

    def __init__(self, key: str, title: str) -> None:
        self._key = key
        self._title = title
        self._sent: tuple[float, str] | None = None
        self._id: UUID | None = None
        self.latest: tuple[float, str] = (0.0, "")
        self._warning = _WarnOnce()
        self._stop = threading.Event()
        # The context contains the flow run to which the artifact belongs.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), name="progress", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Send the last value; gives up after ``timeout_s`` seconds."""
        self._stop.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            stopping = self._stop.wait(_POST_S)
            try:
                self._send()
            except Exception as error:  # an error of the server must not fail the work
                self._warning.log("cannot show progress in the Prefect UI", error)
            if stopping:
                return

    def _send(self) -> None:
        # Prefect loads for a second; programs that only write durations do without it.
        from prefect.artifacts import create_progress_artifact, update_progress_artifact

        latest = self.latest
        if latest == self._sent:
            return
        percent, text = latest
        description = f"{self._title}: {text}"
        if self._id is None:
            made: Any = create_progress_artifact(percent, key=self._key, description=description)
            self._id = made
        else:
            update_progress_artifact(self._id, percent, description=description)
        self._sent = latest


def shared_console() -> Console:
    """Return the console of Prefect's log on this terminal, or a new one on stderr."""
    for handler in (*logging.getLogger("prefect").handlers, *logging.getLogger().handlers):
        console = getattr(handler, "console", None)
        if isinstance(console, Console):
            return _with_styles_of_rich(console)
    return Console(file=sys.stderr)


def _with_styles_of_rich(console: Console) -> Console:
    """Add what a bar is drawn with to Prefect's console, which has only the styles of its log lines."""
    try:
        console.get_style("bar.back")
    except MissingStyle:
        console.push_theme(Theme())
    return console


def duration(seconds: float) -> str:
    """Return a duration in readable form: ``8 s``, ``3 min 20 s``, ``2 h 05 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
