"""The chain in a terminal: a table with a row per stage, redrawn every second."""

import time
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tasks.chain.side_by_side import Board
from tasks.runtime.progress import duration

#: Whether flows of this process draw tables on its terminal; else they write lines.
DRAWING: ContextVar[bool] = ContextVar("drawing", default=False)

_STYLES = {"waits": "dim", "runs": "bold cyan", "done": "green", "up to date": "green dim", "failed": "bold red"}
_BAR = 24


class LiveTable:
    """Shows a `Board` as a table on a terminal; a context manager, and the callback of `run_chain`."""

    def __init__(self, console: Console, title: str) -> None:
        self._title = title
        self._board: Board | None = None
        self._line = ""
        self._live = Live(self, console=console, refresh_per_second=2, transient=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.refresh()
        self._live.stop()

    def watch(self, board: Board) -> None:
        """Show this board from now on."""
        self._board = board

    def __call__(self, done: int, total: int, text: str) -> None:
        """Update the progress of the whole run."""
        share = min(done / total, 1.0) if total else 1.0
        self._line = f"{self._title}  {share:.0%}  {text}"

    def __rich__(self) -> RenderableType:
        """Return the table and the line below it."""
        return Group(self._stages(), Text(self._line, style="bold"))

    def _stages(self) -> RenderableType:
        table = Table(box=None, pad_edge=False, expand=True)
        widest = max(map(len, self._board.chain)) if self._board else 0
        table.add_column("stage", min_width=widest, no_wrap=True)
        table.add_column("state", min_width=max(map(len, _STYLES)), no_wrap=True)
        table.add_column("", min_width=_BAR // 2, max_width=_BAR)
        table.add_column("time", min_width=15, justify="right", no_wrap=True)
        table.add_column("last message", ratio=1, overflow="ellipsis", no_wrap=True)
        if self._board is None:
            return table
        for row in rows(self._board):
            state = Text(row["state"], style=_STYLES[row["state"]])
            bar = ProgressBar(total=1.0, completed=row["share"], width=_BAR) if row["state"] == "runs" else ""
            table.add_row(row["stage"], state, bar, row["time"], Text(row["text"]))
        return table


def rows(board: Board) -> list[dict[str, Any]]:
    """Return the row of each stage: state, share done in [0, 1], time taken or left, last message."""
    now, shown = time.monotonic(), []
    with board.lock:
        running, took, failed = dict(board.running), dict(board.took), set(board.failed)
        finished, last = set(board.finished), dict(board.last)
    for name in board.chain:
        row: dict[str, Any] = {"stage": name, "state": "waits", "share": 0.0, "time": "", "text": last.get(name, "")}
        if name in running:
            process, since = running[name]
            reported = process.progress()
            # What a stage said last gets old while it works on one unit; a late one shows how long it has taken.
            left = (reported.get("remaining_s") or 0.0) - (now - reported.get("at", now))
            row |= {"state": "runs", "share": process.share(), "text": reported.get("text") or row["text"]}
            row["time"] = f"{duration(left)} left" if left > 0.0 else duration(now - since)
        elif name in failed:
            row |= {"state": "failed", "time": duration(took[name])}
        elif name in finished:
            row["state"] = "done" if name in took else "up to date"
            row["time"] = duration(took[name]) if name in took else ""
        shown.append(row)
    return shown
