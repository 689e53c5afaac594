"""The identities as files that DVC depends on, and the checks that keep them correct.

``python -m flows.identity --write`` writes one identity per stage to ``results/identity/``.  A stage refuses to run
under an identity that is not its own (`check`), and when it has ended, it writes from what it made its results
(`tasks.identity.made`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline_lib.identity.differences import differences
from pipeline_lib.settings import load_params
from pipeline_lib.storage import CorruptFileError, read_json, write_json
from tasks.experiment.arms import IDENTITIES
from tasks.experiment.check_run import check_run
from tasks.identity.dvc_record import dvc_digest, identity_file, kind_of, read_lock, recorded, running_stage
from tasks.identity.inputs import wrong_inputs
from tasks.identity.made import made_from, refuse_false_records, remove_outdated, write_made
from tasks.identity.stages import STAGES, IdentityError, identity_of


def write_identities() -> None:
    """Write the identity of every stage to ``results/identity/<stage>.json``; unchanged files are not rewritten.

    Raises:
        SettingsError: a setting is wrong, or the run could not end well.
        IdentityError: as `refuse_false_records`.
    """
    params = load_params()
    check_run(params)
    for stage in STAGES:
        path, identity = IDENTITIES / f"{stage}.json", identity_of(stage, params)
        if read_identity(path) != identity:
            write_json(path, identity)
    refuse_false_records()
    remove_outdated()


def changed_identities() -> list[str]:
    """Return the stages whose identity differs from the written one; raises as `write_identities`."""
    params = load_params()
    check_run(params)
    changed = [name for name in STAGES if read_identity(IDENTITIES / f"{name}.json") != identity_of(name, params)]
    if not changed:  # else they are written first
        refuse_false_records()
    return changed


def read_identity(path: Path) -> dict[str, Any] | None:
    """Return a written identity, or None if it is missing or damaged."""
    try:
        return dict(read_json(path))
    except (FileNotFoundError, CorruptFileError, TypeError, ValueError):
        return None


def check() -> dict[str, Any] | None:
    """Check that DVC will store the result of this stage under the right identity; without DVC, return None.

    DVC uses the identity that was written last.  Code or settings may have changed since: during a run, or before
    ``dvc repro --single-item``, which skips the stage ``identity`` and all other dependencies.

    Returns:
        what `finish` needs when the stage has ended.

    Raises:
        IdentityError: they have changed, or the stage's inputs differ from those that DVC has stored.
    """
    stage = running_stage()
    if not stage:
        return None
    identities = _written()
    written, now = identities[kind_of(stage)], identity_of(kind_of(stage))
    if written != now:
        lines = differences(written, now) if written else [f"there is no {identity_file(stage)}"]
        raise IdentityError(
            f"stage {kind_of(stage)} would be stored under a wrong identity; this has changed since the stage "
            f"`identity` ran:\n  {_shown(lines)}\n{_ADVICE}"
        )
    if lines := wrong_inputs(stage, identities):
        raise IdentityError(f"stage {stage} would use inputs that are not up to date:\n  {_shown(lines)}\n{_ADVICE}")
    return made_from(stage)


def finish(began: dict[str, Any] | None) -> None:
    """Write beside the results of this stage from what it made them; raises as `write_made`."""
    if began is not None:
        write_made(running_stage(), began)


def refuse_stale(paths: Sequence[str]) -> None:
    """Refuse to use results that the present code and settings did not make.

    Raises:
        IdentityError: a stage on which ``paths`` depend is stale, or a file was changed by hand.
    """
    if lines := wrong_inputs("", _written(), paths):
        raise IdentityError(
            f"these results are not those of the present code and settings:\n  {_shown(lines)}\n{_ADVICE}; or take the "
            "changes back"
        )


def _written() -> dict[str, dict[str, Any] | None]:
    return {name: read_identity(IDENTITIES / f"{name}.json") for name in STAGES}


_ADVICE = "run `dvc repro` (or `python -m flows.experiment`) again; it updates them first"


def _shown(lines: list[str]) -> str:
    return "\n  ".join([*lines[:12], *(["..."] if len(lines) > 12 else [])])


def dvc_has_taken(stage: str, seed: int) -> bool:
    """Return whether ``dvc.lock`` has a training run with the current identity, so that DVC owns its outputs.

    False for a run that finished but was killed before DVC stored it.
    """
    own = identity_file(stage)
    known = recorded((read_lock() or {}).get(f"{stage}@{seed}", {}), "deps")
    return own.is_file() and known.get(own.as_posix()) == dvc_digest(own)
