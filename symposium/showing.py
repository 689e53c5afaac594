"""HTML of results, as notebooks show it: plain tables that inherit the page's look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

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
