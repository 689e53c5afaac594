"""The name of a run in Prefect, DVC and MLflow, and the facts that connect it with a commit.

The name is ``SYMPOSIUM_RUN`` (set by `flows.experiment` and by deployments for all their stages), else the name of the
DVC experiment, else the commit with a digest of the settings.  So all stages of one ``dvc repro`` share it, and a run
with other settings has another name.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pipeline_lib.storage import digest
from pipeline_lib.tracking.tracker import flat

RUN = "SYMPOSIUM_RUN"
CHANGES = "changes"


def run_name(params: Mapping[str, Any]) -> str:
    """Return the name of the run that this process belongs to; ``params`` are the settings as JSON-like data."""
    return (
        os.environ.get(RUN) or os.environ.get("DVC_EXP_NAME") or f"{commit()[:8] or 'uncommitted'}-{digest(params)[:6]}"
    )


def identity_tags() -> dict[str, str]:
    """Return the tags that tie a run to the other tools; a fact that does not apply is left out."""
    facts = {
        "git.commit": commit(),
        "git.dirty": _dirty(),
        "dvc.stage": os.environ.get("DVC_STAGE", ""),
        "dvc.exp_name": os.environ.get("DVC_EXP_NAME", ""),
        "dvc.exp_baseline": os.environ.get("DVC_EXP_BASELINE_REV", ""),
        "prefect.flow_run_id": _flow_run_id(),
    }
    return {name: value for name, value in facts.items() if value}


def changes(project: Path = Path()) -> dict[str, str]:
    """Return the tag that says which settings differ from the commit's ``params.yaml``, for example ``train.steps=80``.

    A preset counts by its name, as it is written there.  There is no tag without a commit.
    """
    commit = os.environ.get("DVC_EXP_BASELINE_REV", "HEAD")
    committed = _git("-C", str(project), "show", f"{commit}:./params.yaml")
    if not committed:
        return {}
    before = flat(yaml.safe_load(committed))
    now = flat(yaml.safe_load((project / "params.yaml").read_text(encoding="utf-8")) or {})
    return {CHANGES: ", ".join(f"{key}={value}" for key, value in now.items() if before.get(key) != value)}


def commit() -> str:
    """Return the commit; in a DVC experiment this is its baseline, because the experiment's own does not exist yet."""
    return os.environ.get("DVC_EXP_BASELINE_REV") or _git("rev-parse", "HEAD")


def _dirty() -> str:
    """Return whether tracked files differ from the commit; ``dvc.lock`` does not count, runs write it themselves."""
    if not _git("rev-parse", "HEAD"):
        return ""
    return str(bool(_git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!dvc.lock"))).lower()


def _flow_run_id() -> str:
    from prefect.runtime import flow_run

    return str(flow_run.id or "")


def _git(*arguments: str) -> str:
    """Return the output of git, empty if there is no repository."""
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
