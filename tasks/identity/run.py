"""The name of a run in Prefect, DVC and MLflow, and the facts that connect it with a commit.

The name is ``SYMPOSIUM_RUN`` (set by `flows.experiment` and by deployments for all their stages), else the name that a
person gave (``SYMPOSIUM_TITLE``), else that of the DVC experiment, else the commit with a digest of the settings.  So
all stages of one ``dvc repro`` share it, and a run with other settings has another name.  No result depends on a name.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline_lib.settings import SettingsError
from pipeline_lib.settings.reading import read_mapping, read_yaml
from pipeline_lib.storage import digest
from pipeline_lib.tracking.tracker import flat

RUN = "SYMPOSIUM_RUN"
TITLE, NOTE = "SYMPOSIUM_TITLE", "SYMPOSIUM_NOTE"
"""Environment variables of a run and its stages: the name that a person gave it, and a note."""
CHANGES, NOTED = "changes", "note"
"""Tags of a run in MLflow."""

NAME_PATTERN = r"\w[\w .,:()+=@-]{0,79}"
"""What the name of a run looks like: it is part of file names, of tags and of what MLflow is asked for."""


def run_name(params: Mapping[str, Any]) -> str:
    """Return the name of the run that this process belongs to; ``params`` are the settings as JSON-like data."""
    given = (os.environ.get(variable) for variable in (RUN, TITLE, "DVC_EXP_NAME"))
    return next(filter(None, given), "") or f"{commit()[:8] or 'uncommitted'}-{digest(params)[:6]}"


def checked_name(text: str) -> str:
    """Return the name that a person gives a run, without spaces around it.

    Raises:
        SettingsError: it has characters or a length that a name cannot have.
    """
    if not re.fullmatch(NAME_PATTERN, name := text.strip()):
        raise SettingsError(
            f"name of the run: got {text!r}; give 1 to 80 letters, digits, spaces and . , : ( ) + = @ _ -, of which a "
            "letter or digit is the first"
        )
    return name


def call(name: str, note: str) -> None:
    """Give the run of this process, and of stages that it starts, a name and a note; an empty one changes nothing."""
    given = {TITLE: name, NOTE: " ".join(note.split())}
    os.environ.update({variable: text for variable, text in given.items() if text})


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


def told(project: Path = Path()) -> dict[str, str]:
    """Return the tags that tell what a run is: its note, and which settings differ from the commit's ``params.yaml``.

    Settings are named as they are written there (``train.steps=80``, a preset by its name), if there is a commit.
    """
    note = {NOTED: os.environ[NOTE]} if os.environ.get(NOTE) else {}
    commit = os.environ.get("DVC_EXP_BASELINE_REV", "HEAD")
    committed = _git("-C", str(project), "show", f"{commit}:./params.yaml")
    if not committed:
        return note
    before = flat(read_yaml(committed))
    now = flat(read_mapping(project / "params.yaml"))
    return {**note, CHANGES: ", ".join(f"{key}={value}" for key, value in now.items() if before.get(key) != value)}


def commit() -> str:
    """Return the commit; in a DVC experiment this is its baseline, because the experiment's own does not exist yet."""
    return os.environ.get("DVC_EXP_BASELINE_REV") or _git("rev-parse", "HEAD")


def _dirty() -> str:
    """Return whether tracked files differ from the commit; ``dvc.lock`` does not count, runs write it themselves."""
    if not _git("rev-parse", "HEAD"):
        return ""
    return str(bool(_git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!dvc.lock"))).lower()


def _flow_run_id() -> str:
    # Prefect loads for a second; programs that only name a run do without it.
    from prefect.runtime import flow_run

    return str(flow_run.id or "")


def _git(*arguments: str) -> str:
    """Return the output of git, empty if there is no repository."""
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
