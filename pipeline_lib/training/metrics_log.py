"""``metrics.jsonl``: one line per step, the local record of a run; trackers get the same numbers.

A line is appended after each step.  A run that continues from a checkpoint first removes the lines after it (and a line
that a kill truncated), so no step appears twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from pipeline_lib.storage import canonical_json, write_text

NAME = "metrics.jsonl"


class MetricsLog:
    """The metrics file of one run."""

    def __init__(self, scratch: Path, last_step: int) -> None:
        """Open the file for appending, keeping the lines of steps 1 to ``last_step``."""
        self.path = scratch / NAME
        kept = [line for step, line in _lines(self.path) if step <= last_step]
        write_text(self.path, "".join(kept))
        self._file: TextIO = self.path.open("a", encoding="utf-8")

    def append(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the line of a step: ``{"step": 11, "<metric>": value, ...}``.

        Raises:
            ValueError: a value is NaN or infinite.
        """
        self._file.write(canonical_json({"step": step, **metrics}) + "\n")
        self._file.flush()

    def rows(self) -> list[dict[str, float]]:
        """Return the lines of all steps so far, each with its ``step``."""
        return [dict(json.loads(line)) for _, line in _lines(self.path)]

    def sync(self) -> None:
        """Flush the file to disk; to be called before a checkpoint is written."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _lines(path: Path) -> list[tuple[int, str]]:
    """Return step and text of all complete lines before the first damaged one."""
    found: list[tuple[int, str]] = []
    if not path.exists():
        return found
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
        try:
            step = int(json.loads(line)["step"])
        except (ValueError, KeyError, TypeError):
            break
        if not line.endswith("\n"):
            break
        found.append((step, line))
    return found
