"""A copy of this project in a folder of its own, with settings so small that the whole chain runs in a minute."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]

BEGAN_WITH = dict(os.environ)  # libraries that tests load later add variables

SMALL: dict[str, Any] = {
    "problems": {"sizes": {"train": 64, "validation": 8, "test": 12}},
    "policy": {"warm_start": {"steps": 120, "batch": 16}},
    "audit": {"problems": 4, "group_size": 4},
    "seeds": {"train": [0], "single_agent": []},
    "train": {"steps": 12, "checkpoint_every": 3, "problems_per_step": 8, "group_size": 4},
    "evaluate": {"validation": {"samples": 2}, "test": {"samples": 2}, "pass_k": [1, 2]},
    "verdict": {"resamples": 200},
}


def make_project(folder: Path, settings: dict[str, Any] = SMALL) -> Path:
    """Copy what git knows (and what it would) into ``folder``, as a repository of its own with small settings."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file() and name != "dvc.lock" and not name.startswith("results/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    change_settings(folder, settings)
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "start"]):
        call(folder, "git", "-c", "user.name=t", "-c", "user.email=t@localhost", *command)
    return folder


def lay_tracking(project: Path, database: Path) -> None:
    """Give a project MLflow's database, which its first stage would take seconds to make."""
    home = project / ".symposium/mlflow"
    home.mkdir(parents=True)
    shutil.copy(database, home / "mlflow.db")


def change_settings(folder: Path, changes: dict[str, Any]) -> None:
    """Merge ``changes`` into the project's params.yaml."""
    path = folder / "params.yaml"
    content = yaml.safe_load(path.read_text())
    _merge(content, changes)
    path.write_text(yaml.safe_dump(content, sort_keys=False))


def _merge(target: dict[str, Any], changes: dict[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            _merge(target[key], value)
        else:
            target[key] = value


def environment() -> dict[str, str]:
    """Return the environment of a person who activated the virtual environment and started nothing."""
    kept = {k: v for k, v in BEGAN_WITH.items() if not k.startswith(("PREFECT", "SYMPOSIUM_", "MLFLOW_", "DVC_"))}
    kept["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    kept["DVC_NO_ANALYTICS"] = "1"
    kept.pop("PYTHONUNBUFFERED", None)
    return kept


def call(folder: Path, *command: str, status: int = 0, **variables: str) -> str:
    """Run a command in the project, check its exit status, return what it printed (both streams)."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment() | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == status, f"{' '.join(command)}: status {done.returncode}\n{done.stdout[-6000:]}"
    return done.stdout
