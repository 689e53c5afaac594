"""The style of figures: colours for all kinds of colour vision, text in the page's font, self-contained SVG.

Every figure is drawn twice, wide and narrow, and the page shows the one that fits, so that labels have their proper
size on a phone and on paper.  Colours are those of Okabe & Ito (2008), dark enough on white; what a colour says, a
marker or a label says too.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

    from pipeline_lib.environment_api.metrics import Metric

BLUE, ORANGE, GREEN, RED, PURPLE, SKY, GREY, INK = (
    "#0072B2", "#D98200", "#00805E", "#C44E00", "#A8558A", "#56B4E9", "#6B6B6B", "#1C2024",
)  # fmt: skip
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, RED, SKY, INK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
FAINT = "#E3E6EA"

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "symposium",
    "font.family": ["DejaVu Sans"],  # laid out in a wide font, shown in the page's own
    "font.size": 9.0,
    "text.parse_math": False,  # a name may have dollar signs
    "axes.titlesize": 9.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9.0,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#8A9099",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": FAINT,
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "xtick.color": "#4A4F57",
    "ytick.color": "#4A4F57",
    "text.color": INK,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}

#: Draws one figure; the flag is true for the narrow version.
Painter = Callable[["Canvas", bool], None]


@dataclass(frozen=True, slots=True)
class Link:
    """A table cell that leads to what is behind its number."""

    value: Any  #: what the cell shows
    target: str  #: address, for example ``#id`` of an element of the page


@dataclass(frozen=True, slots=True)
class Table:
    """The numbers behind a figure."""

    columns: tuple[str, ...]  #: headings, with units
    rows: Sequence[Sequence[Any]]  #: cells, or a `Link` each; numbers are formatted by the page


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure ready for the page."""

    id: str  #: short name, unique on the page
    title: str  #: what it shows, as a heading
    caption: str  #: how to read it
    wide: str  #: SVG for screens and paper
    narrow: str  #: SVG for phones
    table: Table  #: the numbers behind it

    def _repr_svg_(self) -> str:
        """Return what a notebook shows."""
        return self.wide


def figure(
    name: str,
    title: str,
    caption: str,
    paint: Painter,
    table: Table,
    heights: tuple[float, float] = (3.2, 3.1),
    width: float = 7.6,
) -> Figure:
    """Draw a figure in both widths; in inches, ``heights`` of the wide and the narrow one."""
    return Figure(
        name,
        title,
        caption,
        _svg(paint, (width, heights[0]), False, f"{name}-w", title),
        _svg(paint, (3.7, heights[1]), True, f"{name}-n", title),
        table,
    )


def _svg(paint: Painter, size: tuple[float, float], narrow: bool, prefix: str, title: str) -> str:
    """Return one drawing as an SVG element whose ids are its own and whose size is left to the page."""
    # A machine that trains and draws nothing need not have it, nor wait for it.
    from matplotlib import figure, rc_context

    with rc_context(_STYLE):
        canvas = figure.Figure(figsize=size, layout="constrained")
        paint(canvas, narrow)
        buffer = io.StringIO()
        canvas.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", text)
    text = re.sub(r'xlink:href="#([^"]+)"', rf'href="#{prefix}-\1"', text)
    opening = text[: text.index(">") + 1]
    box = re.search(r'viewBox="[^"]+"', opening)
    assert box is not None  # matplotlib always writes one
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {box.group(0)} role="img" aria-label={quoteattr(title)}>'
    return head + text[len(opening) :].strip()


def percent(axis: Any) -> None:
    """Label an axis of shares in per cent."""
    from matplotlib.ticker import PercentFormatter  # as in `_svg`

    axis.set_major_formatter(PercentFormatter(1.0, decimals=None, symbol=" %"))


def metric_axis(axis: Any, info: Metric) -> None:
    """Label an axis with a metric; shares are in per cent."""
    axis.set_label_text(info.label)
    if info.share:
        percent(axis)


def row_axes(axes: Axes, names: Sequence[str], width: int, info: Metric) -> None:
    """Name the rows of a figure, the first on top, with labels of ``width`` characters; the x axis has the metric."""
    axes.set_yticks(range(len(names)), [wrap(name, width) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=True, axis="x")
    metric_axis(axes.xaxis, info)


def end_labels(axes: Axes, labels: Sequence[tuple[float, str, str]], x: float, spacing: float = 0.075) -> None:
    """Write ``labels`` (y, text, colour) at the end ``x`` of lines, ``spacing`` (share of the axis) apart or more.

    The limits of the axes must be final.
    """
    low, high = axes.get_ylim()
    gap = (high - low) * spacing
    ordered = sorted(labels)
    placed: list[float] = []
    for y, _, _ in ordered:
        placed.append(max(y, placed[-1] + gap) if placed else y)
    if placed and placed[-1] > high:  # the topmost would leave the figure: push all that follow downwards
        placed[-1] = max(high, ordered[-1][0])
        for i in range(len(placed) - 2, -1, -1):
            placed[i] = min(placed[i], placed[i + 1] - gap)
    for (_, text, colour), at in zip(ordered, placed, strict=True):
        axes.annotate(
            text, (x, at), xytext=(5, 0), textcoords="offset points", va="center", color=colour, fontsize=8.5,
            annotation_clip=False,
        )  # fmt: skip


def wrap(text: str, width: int) -> str:
    """Break a label into lines of at most ``width`` characters, between words."""
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
