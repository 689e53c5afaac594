"""HTML of results, as notebooks show it: plain tables that inherit the page's look.

Progress bars: in a notebook an HTML bar that is drawn over itself, on a terminal one of rich, elsewhere none.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

from rich.console import Console
from rich.progress import Progress

from pipeline_lib.environment_api.metrics import Metrics, describe


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table; numbers are aligned to the right, None is a dash."""
    head = "".join(f"<th style='text-align:left'>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def paragraph(text: str, strong: str = "") -> str:
    """Return a paragraph, which may begin with words in bold."""
    lead = f"<b>{escape(strong)}</b> " if strong else ""
    return f"<p>{lead}{escape(text)}</p>"


def means(values: Mapping[str, float], metrics: Metrics) -> list[list[str]]:
    """Return rows of name and value with its unit."""
    return [[_label(name, metrics), describe(name, metrics).text(value)] for name, value in values.items()]


def _label(name: str, metrics: Metrics) -> str:
    label = describe(name, metrics).label
    return label if name not in metrics or label == name else f"{label} ({name})"


def _cell(value: Any) -> str:
    if value is None:
        return "<td>–</td>"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"<td style='text-align:left'>{escape(str(value))}</td>"
    text = f"{value:,}" if isinstance(value, int) else f"{value:.3g}"
    return f"<td style='text-align:right'>{text}</td>"


_EVERY_S = 0.2

#: Called as ``report(done, total, text)``.
Report = Callable[[int, int, str], None]


@contextmanager
def progress(title: str) -> Iterator[Report]:
    """Yield what shows how far some work is; drawn a few times a second at most."""
    from transformers.utils.logging import disable_progress_bar  # here, what has progress loads it anyway

    disable_progress_bar()  # of loading and saving weights, which takes a moment
    if _in_notebook():
        yield _throttled(_notebook_bar(title))
    elif sys.stderr.isatty():
        with Progress(console=Console(stderr=True), transient=True) as bars:
            task = bars.add_task(title, total=None)

            def draw(done: int, total: int, text: str) -> None:
                bars.update(task, completed=done, total=total, description=f"{title}  {text}")

            yield _throttled(draw)
    else:
        yield lambda done, total, text: None


def _in_notebook() -> bool:
    """Return whether a Jupyter kernel runs this, without importing IPython where it is not running."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


def _notebook_bar(title: str) -> Report:
    from IPython.display import HTML, display  # which only a notebook has

    shown: Any = display(HTML(_bar(title, 0, 0, "")), display_id=True)

    def draw(done: int, total: int, text: str) -> None:
        shown.update(HTML(_bar(title, done, total, text)))

    return draw


def _bar(title: str, done: int, total: int, text: str) -> str:
    label = f"{escape(title)} <progress value='{done}' max='{max(total, 1)}' style='vertical-align:middle'></progress>"
    return f"<div>{label} {done}/{total} {escape(text)}</div>"


def _throttled(draw: Report) -> Report:
    drawn = -1e9

    def report(done: int, total: int, text: str) -> None:
        nonlocal drawn
        now = time.monotonic()
        if done >= total or now - drawn >= _EVERY_S:
            drawn = now
            draw(done, total, text)

    return report
