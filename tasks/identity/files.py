"""The identities as files that DVC depends on, and the checks that keep them correct.

``python -m flows.identity --write`` writes one identity per stage to ``results/identity/``.  A stage refuses to run
under an identity that is not its own (`check`), and a result is refused if the identity was rewritten during the run.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline_lib.identity.differences import differences
from pipeline_lib.settings import load_params
from pipeline_lib.storage import CorruptFileError, read_json, write_json
from tasks.experiment.arms import IDENTITIES
from tasks.experiment.check_run import check_run
from tasks.identity.committed import committed_by_hand
from tasks.identity.inputs import wrong_inputs
from tasks.identity.stages import STAGES, IdentityError, identity_of

log = logging.getLogger("symposium.stage")


def write_identities() -> None:
    """Write the identity of every stage to ``results/identity/<stage>.json``; unchanged files are not rewritten.

    Raises:
        SettingsError: a setting is wrong, or the run could not end well.
    """
    _warn_of_commits()
    params = load_params()
    check_run(params)
    for stage in STAGES:
        path, identity = IDENTITIES / f"{stage}.json", identity_of(stage, params)
        if read_identity(path) != identity:
            write_json(path, identity)


def changed_identities() -> list[str]:
    """Return the stages whose identity differs from the written one."""
    _warn_of_commits()
    params = load_params()
    check_run(params)
    return [name for name in STAGES if read_identity(IDENTITIES / f"{name}.json") != identity_of(name, params)]


def _warn_of_commits() -> None:
    if stages := committed_by_hand():
        names = ", ".join(stages)
        log.warning(
            "dvc.lock attributes the outputs of %s to code or settings with which they never ran here (`dvc commit`?); "
            "unless another machine made them so, make them anew: dvc repro --force --single-item %s",
            names,
            names.replace(",", ""),
        )


def read_identity(path: Path) -> dict[str, Any] | None:
    """Return a written identity, or None if it is missing or damaged."""
    try:
        return dict(read_json(path))
    except (FileNotFoundError, CorruptFileError, TypeError, ValueError):
        return None


def check() -> None:
    """Check that DVC will store the result of this stage under the right identity; without DVC, do nothing.

    DVC uses the identity that was written last.  Code or settings may have changed since: during a run, or before
    ``dvc repro --single-item``, which skips the stage ``identity`` and all other dependencies.

    Raises:
        IdentityError: they have changed, or the stage's inputs differ from those that DVC has stored.
    """
    whole_name = os.environ.get("DVC_STAGE", "")
    stage = whole_name.partition("@")[0]
    if stage not in STAGES:
        return
    identities = {name: read_identity(IDENTITIES / f"{name}.json") for name in STAGES}
    written, now = identities[stage], identity_of(stage)
    if written != now:
        lines = differences(written, now) if written else [f"there is no {IDENTITIES / stage}.json"]
        raise IdentityError(
            f"stage {stage} would be stored under a wrong identity; this has changed since the stage `identity` ran:\n"
            f"  {_shown(lines)}\n{_ADVICE}"
        )
    if lines := wrong_inputs(whole_name, identities):
        raise IdentityError(
            f"stage {whole_name} would use inputs that are not up to date:\n  {_shown(lines)}\n{_ADVICE}"
        )


_ADVICE = "run `dvc repro` (or `python -m flows.experiment`) again; it updates them first"


def _shown(lines: list[str]) -> str:
    return "\n  ".join([*lines[:12], *(["..."] if len(lines) > 12 else [])])


@contextlib.contextmanager
def unchanged() -> Iterator[None]:
    """Check that the identity file does not change while DVC runs a stage: DVC reads it when the stage has ended.

    Raises:
        IdentityError: it changed; the results are not stored.
    """
    path = IDENTITIES / f"{os.environ.get('DVC_STAGE', '').partition('@')[0]}.json"
    before = path.read_bytes() if path.is_file() else b""
    yield
    if path.is_file() and path.read_bytes() != before:
        raise IdentityError(f"{path} was rewritten while the stage ran; run the same command again")


def dvc_has_taken(stage: str, seed: int) -> bool:
    """Return whether ``dvc.lock`` has a training run with the current identity, so that DVC owns its outputs.

    False for a run that finished but was killed before DVC stored it.
    """
    import yaml

    own = IDENTITIES / f"{stage}.json"
    try:
        lock = yaml.safe_load(Path("dvc.lock").read_text(encoding="utf-8"))["stages"][f"{stage}@{seed}"]
        known = {item["path"]: item["md5"] for item in lock["deps"]}
        return known[own.as_posix()] == hashlib.md5(own.read_bytes(), usedforsecurity=False).hexdigest()
    except (OSError, KeyError, TypeError, yaml.YAMLError):
        return False
