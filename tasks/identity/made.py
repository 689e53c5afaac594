"""Each stage writes beside its results from what it made them, and what they are; DVC keeps this as one more output.

``dvc.lock`` says the same, but ``dvc commit --force`` and ``dvc exp save`` write into it whatever lies in the folder,
without running anything: old weights become those of new code.  What the stage itself wrote then contradicts it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline_lib.storage import write_json
from tasks.experiment.arms import RESULTS
from tasks.identity.dvc_record import (
    content_of,
    dvc_digest,
    identity_file,
    kind_of,
    listed,
    read_lock,
    recorded,
)
from tasks.identity.stages import STAGES, IdentityError

MADE = RESULTS / "made"
_IDENTITY, _INPUTS, _OUTPUTS = "identity", "inputs", "outputs"
_LARGE = "models"


def made_file(stage: str) -> Path:
    """Return the file of a stage as DVC names it: digests, in DVC's form, of its identity, inputs and outputs."""
    return MADE / f"{stage}.json"


def made_from(stage: str) -> dict[str, Any]:
    """Return from what a stage that starts now makes its results.

    Weights are not hashed again: DVC's digest of the stage that made them is taken, and a folder of several runs, whose
    stages each say what they made, is left out.
    """
    lock = read_lock() or {}
    known = {path: md5 for entry in lock.values() for path, md5 in recorded(entry, "outs").items()}
    inputs: dict[str, str] = {}
    for path in listed(stage, "deps"):
        if path == identity_file(stage).as_posix():
            continue
        if Path(path).parts[0] != _LARGE:
            inputs[path] = dvc_digest(Path(path))
        elif path in known:
            inputs[path] = known[path]
    return {_IDENTITY: dvc_digest(identity_file(stage)), _INPUTS: inputs}


def write_made(stage: str, began: Mapping[str, Any]) -> None:
    """Write the file of a stage that has ended.

    Args:
        stage: as DVC names it.
        began: what `made_from` returned at its start.

    Raises:
        IdentityError: the identity was rewritten in between, and DVC would store the results under the new one.
    """
    own = identity_file(stage)
    if dvc_digest(own) != began[_IDENTITY]:
        raise IdentityError(f"{own} was rewritten while the stage ran; run the same command again")
    outputs = [Path(path) for kind in ("outs", "metrics") for path in listed(stage, kind)]
    made = {path.as_posix(): dvc_digest(path) for path in outputs if path != made_file(stage)}
    write_json(made_file(stage), {**began, _OUTPUTS: made})


def remove_outdated() -> None:
    """Remove the files of results that the present identities did not make, so that ``dvc commit`` cannot store them.

    DVC refuses to commit a stage that lacks an output.  If the identity is as before again, it takes the file from its
    cache.
    """
    for file in MADE.glob("*.json"):
        try:
            outdated = json.loads(file.read_bytes())[_IDENTITY] != dvc_digest(identity_file(file.stem))
        except (OSError, ValueError, KeyError, TypeError):
            outdated = True
        if outdated:
            file.unlink(missing_ok=True)


def contradiction(stage: str, entry: Mapping[str, Any]) -> list[str]:
    """Return the paths for which the stage itself wrote something else than ``dvc.lock``, which DVC would believe.

    What DVC finds changed, it makes or fetches anew, whatever the file says.
    """
    outputs = recorded(entry, "outs")
    content = content_of(made_file(stage), outputs.get(made_file(stage).as_posix(), ""))
    if content is None:  # it is not from here, and DVC makes or fetches it
        return []
    made = json.loads(content)
    said = {identity_file(stage).as_posix(): made[_IDENTITY], **made[_INPUTS], **made[_OUTPUTS]}
    claimed = recorded(entry, "deps") | outputs
    return [path for path, md5 in said.items() if claimed.get(path, md5) != md5 and _lies_there(Path(path), claimed)]


def _lies_there(path: Path, claimed: Mapping[str, str]) -> bool:
    if path.parts[0] == _LARGE:
        return path.exists()
    return path.exists() and dvc_digest(path) == claimed[path.as_posix()]


def refuse_false_records() -> None:
    """Refuse results that ``dvc.lock`` attributes to something that did not make them.

    Raises:
        IdentityError: there are some; the message names them and the command that makes them anew.
    """
    lock = read_lock() or {}
    found = {stage: paths for stage, entry in lock.items() if (paths := contradiction(stage, entry))}
    if found:
        order = list(STAGES)
        names = sorted(found, key=lambda name: (order.index(kind_of(name)), name))
        lines = "\n".join(f"  {name}: {', '.join(found[name])}" for name in names)
        raise IdentityError(
            "dvc.lock was rewritten without running the stage (`dvc commit --force`, `dvc exp save`), and attributes "
            f"these results to files with which they were not made:\n{lines}\n"
            f"make them anew: dvc repro --force --single-item {' '.join(names)}"
        )
