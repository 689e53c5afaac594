"""A notebook of the docs as a page of the site: its text, its code, and what it showed when it was run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import nbformat

#: What of an output is shown: the first that it has.
_RICHEST = ("text/html", "image/svg+xml", "text/plain")


def page(path: Path) -> str:
    """Return the page, as Markdown."""
    notebook: Any = nbformat.read(path, as_version=4)
    parts = [part for cell in notebook.cells for part in _cell(cell)]
    parts.append(f"[This page as a notebook]({path.name})")
    return "\n\n".join(parts) + "\n"


def _cell(cell: Any) -> Iterator[str]:
    if cell.cell_type == "markdown":
        yield re.sub(r"(\]\([\w-]+)\.ipynb\)", r"\1.md)", cell.source)
        return
    yield f"```python\n{cell.source}\n```"
    for output in cell.outputs:
        if shown := _output(output):
            yield f'<div class="notebook-output">{shown}</div>'


def _output(output: Any) -> str:
    """Return an output as HTML in one line, since a blank line would end it in Markdown."""
    if output.output_type == "stream":
        return _plain(output.text) if output.name == "stdout" else ""
    kind = next((kind for kind in _RICHEST if kind in output.get("data", ())), None)
    if kind is None:
        return ""
    return _plain(output.data[kind]) if kind == "text/plain" else " ".join(output.data[kind].split())


def _plain(text: str) -> str:
    return (
        '<pre style="white-space:pre-wrap">'
        + "&#10;".join(escape(line) for line in text.rstrip().split("\n"))
        + "</pre>"
    )
