"""Actions that were already paid for, on disk: a killed evaluation continues without requesting them again.

One JSON line per action, appended and flushed when it arrives; the key contains everything that the action depends on.
A line that a kill or a full disk truncated is skipped, and its action is requested again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline_lib.rollouts.engine import Action
from pipeline_lib.storage import canonical_json, digest


class ActionStore:
    """Remembers actions by key; with no folder, for as long as the object lives."""

    def __init__(self, folder: Path | None) -> None:
        """Read what ``folder`` holds."""
        self._path = None if folder is None else folder / "actions.jsonl"
        self._lock = threading.Lock()
        self._known: dict[str, Action] = {}
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._path.exists():
                for line in self._path.read_text(encoding="utf-8", errors="replace").splitlines():
                    self._take(line)
                if not self._path.read_bytes().endswith(b"\n"):
                    with self._path.open("a", encoding="utf-8") as file:
                        file.write("\n")  # what follows a cut-off line starts on its own

    def _take(self, line: str) -> None:
        try:
            row = json.loads(line)
            logprobs = tuple(float("nan") if v is None else float(v) for v in row["logprobs"])
            action = Action(tuple(int(i) for i in row["ids"]), logprobs, str(row["text"]), str(row["finish"]))
            key = str(row["key"])
        except (ValueError, KeyError, TypeError):
            return
        if digest(_content(key, action)) == row.get("digest"):
            self._known[key] = action

    @staticmethod
    def key(facts: Mapping[str, Any]) -> str:
        """Return the key of an action that depends on ``facts``."""
        return digest(facts)

    def get(self, key: str) -> Action | None:
        """Return the action of ``key`` if it is known."""
        return self._known.get(key)

    def put(self, key: str, action: Action) -> None:
        """Remember an action."""
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
