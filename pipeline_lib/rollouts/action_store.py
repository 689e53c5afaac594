"""A cache of actions on disk, so that a killed evaluation continues without requesting (and paying) them again.

One JSON line per action, appended and flushed when it arrives; the key contains everything that the action depends on.
Truncated lines (after a kill, or on a full disk) are skipped, and their actions are requested again.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from pipeline_lib.rollouts.engine import Action
from pipeline_lib.storage import canonical_json, digest


class ActionStore:
    """Caches actions by key; without a folder, in memory only."""

    def __init__(self, folder: Path | None) -> None:
        """Read the cache in ``folder``, if any."""
        self._path = None if folder is None else folder / "actions.jsonl"
        self._lock = threading.Lock()
        self._known: dict[str, Action] = {}
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._path.exists():
                for line in self._path.read_text(encoding="utf-8", errors="replace").splitlines():
                    self._load_line(line)
                if not self._path.read_bytes().endswith(b"\n"):
                    with self._path.open("a", encoding="utf-8") as file:
                        file.write("\n")  # the next line must not continue a truncated one

    def _load_line(self, line: str) -> None:
        try:
            row = json.loads(line)
            logprobs = tuple(float("nan") if v is None else float(v) for v in row["logprobs"])
            action = Action(tuple(int(i) for i in row["ids"]), logprobs, str(row["text"]), str(row["finish"]))
            key = str(row["key"])
        except (ValueError, KeyError, TypeError):
            return
        if digest(_content(key, action)) == row.get("digest"):
            self._known[key] = action

    def get(self, key: str) -> Action | None:
        """Return the action of ``key``, or None."""
        return self._known.get(key)

    def put(self, key: str, action: Action) -> None:
        """Store an action."""
        content = _content(key, action)
        with self._lock:
            self._known[key] = action
            if self._path is not None:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(canonical_json({**content, "digest": digest(content)}) + "\n")


def _content(key: str, action: Action) -> dict[str, Any]:
    """Return an action as JSON; unknown log-probabilities (NaN) are null."""
    logprobs = [v if v == v else None for v in action.logprobs]
    return {"key": key, "ids": list(action.ids), "logprobs": logprobs, "text": action.text, "finish": action.finish}
