"""Notice results that ``dvc.lock`` attributes to code that did not make them, as after ``dvc commit --force``.

Every stage that ends here leaves a note of its identity, and the next start adds which outputs DVC stored under it.  If
``dvc.lock`` then has the same outputs under an identity with which the stage never ran here, somebody said so by hand;
or another machine made the same bytes with other code, which only a person can know.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from pipeline_lib.storage import CorruptFileError, digest, read_json, write_json
from tasks.experiment.arms import IDENTITIES
from tasks.identity.stages import STAGES
from tasks.services.process_environment import places


def remember_made() -> None:
    """Note under which identity DVC's stage has just run in this process; without DVC, do nothing."""
    stage = os.environ.get("DVC_STAGE", "")
    own = IDENTITIES / f"{stage.partition('@')[0]}.json"
    if stage.partition("@")[0] in STAGES and own.is_file():
        note = _note(stage)
        note["ran"] = sorted({*note["ran"], hashlib.md5(own.read_bytes(), usedforsecurity=False).hexdigest()})
        write_json(_file(stage), note)


def committed_by_hand() -> list[str]:
    """Return the stages whose outputs stand in ``dvc.lock`` under an identity with which they never ran here."""
    found = []
    for stage, identity, outputs in _recorded():
        note = _note(stage)
        if identity in note["ran"]:
            if outputs not in note["outputs"]:
                write_json(_file(stage), {**note, "outputs": [*note["outputs"], outputs]})
        elif outputs in note["outputs"]:
            found.append(stage)
    return found


def _recorded() -> Iterator[tuple[str, str, str]]:
    """Yield of every stage in ``dvc.lock`` its name, the MD5 of its identity, and a digest of its outputs."""
    with contextlib.suppress(OSError, KeyError, TypeError, AttributeError, yaml.YAMLError):
        content = yaml.safe_load(Path("dvc.lock").read_text(encoding="utf-8"))
        for stage, entry in content["stages"].items():
            own = (IDENTITIES / f"{stage.partition('@')[0]}.json").as_posix()
            read = {item["path"]: item["md5"] for item in entry.get("deps", ())}
            if own in read:
                yield stage, read[own], digest([[item["path"], item["md5"]] for item in entry["outs"]])


def _note(stage: str) -> dict[str, Any]:
    with contextlib.suppress(OSError, TypeError, ValueError, CorruptFileError):
        return dict(read_json(_file(stage)))
    return {"ran": [], "outputs": []}


def _file(stage: str) -> Path:
    return places().home / "made" / f"{stage}.json"
