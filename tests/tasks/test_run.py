"""What ties a run to a commit and to the settings of the project."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tasks.identity.run import changes


def git(folder: Path, *arguments: str) -> None:
    author = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    subprocess.run(["git", *author, *arguments], cwd=folder, check=True)


def test_what_differs_from_the_commits_settings_is_named_as_it_is_written(tmp_path: Path) -> None:
    settings = tmp_path / "params.yaml"
    settings.write_text("environment: coding\ntrain: {steps: 80, loss: {kl: 0.0}}\n")
    assert changes(tmp_path) == {}, "there is no commit to compare with"
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "start")
    assert changes(tmp_path) == {"changes": ""}
    settings.write_text("environment: coding-quick\ntrain: {steps: 20, loss: {kl: 0.0}}\n")
    assert changes(tmp_path) == {"changes": "environment=coding-quick, train.steps=20"}
