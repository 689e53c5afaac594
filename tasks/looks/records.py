"""Records of plans, sweeps and looks at a test split in git: one JSON object each, under a ref of its own.

    refs/symposium/plans/<digest>     a plan that was registered
    refs/symposium/sweeps/<digest>    checkpoints that were evaluated on the validation split, and under which plan
    refs/symposium/looks/<digest>     test episodes that were seen, and under which plan

DVC stores experiments in the same way (``refs/exps``).  Such a ref belongs to the repository and to no working tree: it
never makes a working tree dirty, survives ``make clean`` and every checkout, and is shared by all worktrees and by the
workspaces of experiments.  A record is only ever added, under the digest of its content.  Git writes a ref completely
or not at all, so processes side by side need no lock.  ``git clone`` does not copy these refs.  To get them, use ``git
fetch origin 'refs/symposium/*:refs/symposium/*'`` (and ``git push`` with the same arguments).
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from pipeline_lib import storage
from tasks.services.process_environment import project_root

PLANS, SWEEPS, LOOKS = "plans", "sweeps", "looks"

#: Key of git's configuration with which a workspace says to which project it belongs.
PROJECT = "symposium.project"


class RecordsError(RuntimeError):
    """Git cannot keep or give back records; the message has git's words."""


def record(kind: str, identity: str, value: dict[str, Any]) -> None:
    """Add a record, unless there is one with this identity: then the first one stays.

    Args:
        kind: `PLANS`, `SWEEPS` or `LOOKS`.
        identity: digest of what makes the record what it is (not of time and place).
        value: what is recorded, JSON-like.

    Raises:
        RecordsError: there is no repository, or git refuses.
    """
    where, ref = _repository(), f"refs/symposium/{kind}/{identity}"
    if _exists(where, ref):
        return
    blob = _git(where, "hash-object", "-w", "--stdin", given=storage.canonical_json(value)).strip()
    try:
        _git(where, "update-ref", ref, blob, "")  # "": only if there is none
    except RecordsError:
        if not _exists(where, ref):  # else another process was first
            raise


def records(kind: str) -> list[dict[str, Any]]:
    """Return all records of a kind, in no particular order.

    Raises:
        RecordsError: there is no repository, or a record cannot be read.
    """
    where = _repository()
    names = _git(where, "for-each-ref", "--format=%(objectname)", f"refs/symposium/{kind}/").split()
    if not names:
        return []
    rest = _git(where, "cat-file", "--batch", given="\n".join(names) + "\n").encode()
    found = []
    while rest:
        head, _, rest = rest.partition(b"\n")
        size = head.rpartition(b" ")[2]
        if not size.isdigit():
            raise RecordsError(f"{where}: git cannot read a record of {kind}: {head.decode()}")
        found.append(json.loads(rest[: int(size)]))
        rest = rest[int(size) + 1 :]
    return found


def _repository() -> Path:
    """Return a folder in the repository of the project, also from a workspace, which is a clone of it."""
    here = project_root()
    _git(here, "rev-parse", "--git-dir")
    return Path(_git(here, "config", "--default", "", "--get", PROJECT).strip() or here)


def _exists(where: Path, ref: str) -> bool:
    return bool(_git(where, "for-each-ref", "--format=%(objectname)", ref))


def _git(where: Path, *arguments: str, given: str = "") -> str:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=where, input=given, capture_output=True, encoding="utf-8", check=False
        )
    except OSError as error:
        raise RecordsError(f"git cannot be started in {where}: {error}") from error
    if done.returncode != 0:
        raise RecordsError(done.stderr.strip() or f"git {arguments[0]} ended with status {done.returncode}")
    return done.stdout
