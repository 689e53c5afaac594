"""Records of plans, sweeps and looks at a test split in git: one JSON object each, as the message of a commit.

    refs/symposium/plans/<digest>     a plan that was registered
    refs/symposium/sweeps/<digest>    checkpoints that were evaluated on the validation split, and under which plan
    refs/symposium/looks/<digest>     test episodes that were seen, and under which plan

Each has a ref of its own, as DVC's experiments have (``refs/exps``).  It belongs to the repository and to no working
tree: it never makes a working tree dirty, survives ``make clean`` and every checkout, and is shared by all worktrees
and by the workspaces of experiments.  A record is only ever added, under the digest of its content.  Git writes a ref
completely or not at all, so processes side by side need no lock.  It is a commit, because DVC fetches no experiment
into a repository with refs to other objects (those of earlier versions are blobs).

``git clone`` does not copy these refs, so `counted_since` gets those of ``origin`` before looks are counted; ``git
push origin 'refs/symposium/*:refs/symposium/*'`` shares them.  A fetch of them with ``fetch.prune`` deletes those that
origin does not have, so every record has a second ref, ``refs/symposium-kept/...``, which nobody fetches.
"""

import contextlib
import json
import logging
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from pipeline_lib import storage
from tasks.services.process_environment import project_root

log = logging.getLogger("symposium.stage")

PLANS, SWEEPS, LOOKS = "plans", "sweeps", "looks"

_SHARED, _KEPT = "refs/symposium", "refs/symposium-kept"
_ORIGIN_S = 20.0
_HELD_S = 3.0  # git holds the lock of a ref for milliseconds

#: Key of git's configuration with which a workspace says to which project it belongs.
PROJECT = "symposium.project"


class RecordsError(RuntimeError):
    """Git cannot keep or give back records; the message has git's words."""


def record(kind: str, identity: str, value: dict[str, Any]) -> None:
    """Add a record to `PLANS`, `SWEEPS` or `LOOKS`, unless there is one with this identity: then the first one stays.

    The identity is a digest of what makes the record what it is (not of time and place).

    Raises:
        RecordsError: there is no repository, or git refuses.
    """
    where, name = _repository(), f"{kind}/{identity}"
    refs = _refs(where, name)
    if len(refs) == 2:
        return
    commit = next(iter(refs.values()), "") or _commit(where, storage.canonical_json(value))
    for ref in (f"{_KEPT}/{name}", f"{_SHARED}/{name}"):
        try:
            if ref not in refs:
                _write_refs(where, "update-ref", ref, commit, "")  # "": only if there is none
        except RecordsError:
            if ref not in _refs(where, name):  # else another process was first
                raise


def records(kind: str) -> list[dict[str, Any]]:
    """Return all records of a kind, in no particular order.

    Raises:
        RecordsError: there is no repository, or a record cannot be read.
    """
    where = _repository()
    # Of two records under one name the kept one counts, which is that of this repository.
    refs = sorted(_refs(where, kind).items(), reverse=True)  # so it comes last
    names = list({ref.rpartition("/")[2]: found for ref, found in refs}.values())
    if not names:
        return []
    rest = _git(where, "cat-file", "--batch", given="\n".join(names) + "\n").encode()
    contents = []
    while rest:
        head, _, rest = rest.partition(b"\n")
        size = head.rpartition(b" ")[2]
        if not size.isdigit():
            raise RecordsError(f"{where}: git cannot read a record of {kind}: {head.decode()}")
        contents.append(
            json.loads(rest[: int(size)].partition(b"\n\n")[2] if b" commit " in head else rest[: int(size)])
        )
        rest = rest[int(size) + 1 :]
    return contents


def _commit(where: Path, text: str) -> str:
    """Return a commit without files that has this message; equal texts are one commit."""
    tree = _git(where, "hash-object", "-w", "-t", "tree", "--stdin").strip()
    who = "Symposium <symposium@localhost> 0 +0000"
    content = f"tree {tree}\nauthor {who}\ncommitter {who}\n\n{text}"
    return _git(where, "hash-object", "-w", "-t", "commit", "--stdin", given=content).strip()


def counted_since() -> str:
    """Return a sentence: since when this repository counts looks, and what is known of those of ``origin``.

    Records of ``origin`` are fetched first; they then count like those made here.

    Raises:
        RecordsError: there is no repository, or a record cannot be read.
    """
    where = _repository()
    origin = _fetch_from_origin(where)
    times = [str(value["time"]) for kind in (PLANS, SWEEPS, LOOKS) for value in records(kind)]
    since = f"since {min(times)[:16].replace('T', ' ')} UTC, the first known record" if times else "from now on"
    return f"This repository counts looks {since}; {origin}."


def _fetch_from_origin(where: Path) -> str:
    """Fetch the records of ``origin`` and return what it has, in words; a fetch never deletes a record."""
    if "origin" not in _git(where, "remote").split():
        return "it has no remote origin, where looks could have been made before"
    try:
        there = _git(where, "ls-remote", "origin", f"{_SHARED}/{LOOKS}/*", timeout_s=_ORIGIN_S, **_quiet()).splitlines()
        if there:
            _take_from_origin(where)
    except RecordsError as error:
        said = str(error).splitlines()[0]
        return f"looks that only origin has are not counted, because it cannot be asked ({said})"
    if not there:
        return "origin has no looks"
    return (
        "those of origin, at whatever test split, count too"  # no number: a look has a record of its begin and its end
    )


def send_to_origin() -> None:
    """Send the records to ``origin``, if there is one; raises RecordsError if it does not answer, or refuses."""
    where = _repository()
    if "origin" in _git(where, "remote").split():
        _take_from_origin(where)  # else it refuses a record that another machine has sent under the same name
        if _git(where, "for-each-ref", _SHARED):  # of nothing, git makes an error where origin is empty
            _git(where, "push", "--quiet", "origin", f"{_SHARED}/*:{_SHARED}/*", timeout_s=_ORIGIN_S, **_quiet())


def _take_from_origin(where: Path) -> None:
    fetch = ("fetch", "--quiet", "--no-prune", "--no-tags", "--no-write-fetch-head", "origin")
    _write_refs(where, *fetch, f"+{_SHARED}/*:{_SHARED}/*", timeout_s=_ORIGIN_S, **_quiet())


def _quiet() -> dict[str, str]:
    """Return the variables with which git asks nobody for a password."""
    return {"GIT_TERMINAL_PROMPT": "0", "GIT_SSH_COMMAND": os.environ.get("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")}


def _repository() -> Path:
    """Return a folder in the repository of the project, also from a workspace, which is a clone of it."""
    here = project_root()
    _git(here, "rev-parse", "--git-dir")
    return Path(_git(here, "config", "--default", "", "--get", PROJECT).strip() or here)


def _refs(where: Path, name: str) -> dict[str, str]:
    """Return the refs of a record, or of all records of a kind, with their objects."""
    listed = _git(where, "for-each-ref", "--format=%(refname) %(objectname)", f"{_SHARED}/{name}", f"{_KEPT}/{name}")
    return dict(line.split(" ") for line in listed.splitlines())


def _write_refs(where: Path, *arguments: str, **options: Any) -> None:
    """Run a git command that writes refs; if it fails, again without the locks that a killed git left, if any."""
    try:
        _git(where, *arguments, **options)
    except RecordsError:
        if not _removed_locks(where):
            raise
        _git(where, *arguments, **options)


def _removed_locks(where: Path) -> bool:
    """Remove locks of records that nobody holds any more; return whether there were any, held or not."""
    found = False
    for refs in (_KEPT, _SHARED):
        for lock in Path(where, _git(where, "rev-parse", "--git-path", refs).strip()).rglob("*.lock"):
            found = True
            with contextlib.suppress(FileNotFoundError):  # its owner has finished
                while (age := time.time() - lock.stat().st_mtime) < _HELD_S:
                    time.sleep(min(0.1, _HELD_S - age))
                lock.unlink()
                log.warning("%s was left by an interrupt; it was removed, which loses nothing", lock)
    return found


def _git(where: Path, *arguments: str, given: str = "", timeout_s: float | None = None, **variables: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=where,
            env={**os.environ, **variables},
            input=given,
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=timeout_s,
        )
    except OSError as error:
        raise RecordsError(f"git cannot be started in {where}: {error}") from error
    except subprocess.TimeoutExpired:
        raise RecordsError(f"git {arguments[0]} did not answer within {timeout_s:g} s") from None
    if done.returncode != 0:
        raise RecordsError(done.stderr.strip() or f"git {arguments[0]} ended with status {done.returncode}")
    return done.stdout
