"""The verdict on a flow run in Prefect leads to its run in MLflow."""

from pathlib import Path
from typing import Any

import pytest

from flows import chain
from pipeline_lib.storage import write_json
from pipeline_lib.tracking.store import artifact_link, run_link
from tasks.experiment.arms import RESULTS
from tasks.runtime.tracked_run import run_in_mlflow


class Recorded:
    """A run whose ids MLflow has given, or has not."""

    def __init__(self, ids: tuple[str, str] | None) -> None:
        self._ids = ids

    def ids(self, timeout_s: float) -> tuple[str, str] | None:
        return self._ids


def test_the_verdict_links_to_the_run_and_its_report_where_a_server_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYMPOSIUM_HOME", str(tmp_path))
    made: dict[str, str] = {}
    monkeypatch.setattr(chain, "create_markdown_artifact", lambda text, key: made.__setitem__(key, text))
    said = {
        "verdict": "IMPROVED",
        "lines": ["Better.", "Not tried.", "Caveats: 1 look."],
        "caveats": [{"what": "1 look", "details": ["Twice."]}],
    }
    write_json(tmp_path / RESULTS / "verdict.json", said)

    def shown(ids: tuple[str, str] | None) -> str:
        tracked: Any = Recorded(ids)
        chain.show_verdict(tmp_path, "`report/index.html`", run_in_mlflow(tracked, "brave-owl", chain.PAGE.name))
        return made["verdict"]

    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000/")
    text, base = shown(("3", "abc")), "http://127.0.0.1:5000/"
    assert text.startswith("## IMPROVED\n\nBetter.\n\nNot tried.\n\nCaveats: 1 look.\n\n<details>")
    assert "- Twice.\n\n</details>\n\nThe report: `report/index.html`\n\n" in text
    assert text.endswith(
        f"[MLflow run `abc` of `brave-owl`]({base}{run_link('3', 'abc')}), "
        f"[its index.html]({base}{artifact_link('3', 'abc', 'index.html')})"
    )
    assert "MLflow" not in shown(None)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert shown(("3", "abc")).endswith("\n\nMLflow run `abc` of `brave-owl`"), "no link without a server"
