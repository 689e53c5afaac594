"""What DVC has recorded in ``dvc.yaml``, ``dvc.lock`` and its cache, and what each stage has written of itself.

A stage writes beside its results from what it made them, and what they are; DVC keeps this as one more output.
``dvc.lock`` says the same, but ``dvc commit --force`` and ``dvc exp save`` write into it whatever lies in the folder,
without running anything: old weights become those of new code.  What the stage itself wrote then contradicts it.
"""

import configparser
import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml
from dvc.dirs import global_config_dir, system_config_dir

from pipeline_lib.storage import write_json
from tasks.experiment.arms import IDENTITIES, RESULTS, planned_seeds
from tasks.identity.stages import STAGES, IdentityError

Lock = Mapping[str, Mapping[str, Any]]
"""Entries of ``dvc.lock`` by DVC's names of stages, such as ``train@0``."""


def running_stage() -> str:
    """Return DVC's name of the stage that this process is, empty if it is none of `STAGES`."""
    name = os.environ.get("DVC_STAGE", "")
    return name if kind_of(name) in STAGES else ""


def kind_of(stage: str) -> str:
    """Return the name in `STAGES` of a stage as DVC names it."""
    return stage.partition("@")[0]


def identity_file(stage: str) -> Path:
    """Return the file with the identity of a stage as DVC names it."""
    return IDENTITIES / f"{stage}.json"


def read_lock() -> Lock | None:
    """Return the entries of ``dvc.lock``, none without the file, and None while DVC writes it.

    The file keeps entries of seeds that were taken out of the settings; they are left out here.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    planned: dict[str, set[str]] = {}
    try:
        content = yaml.load(Path("dvc.lock").read_text(encoding="utf-8"), Loader=loader)
        entries: dict[str, Any] = dict(content["stages"])
    except FileNotFoundError:
        return {}
    except (OSError, KeyError, TypeError, yaml.YAMLError):
        return None
    for name in list(entries):
        kind, _, seed = name.partition("@")
        if seed and kind in STAGES:
            if kind not in planned:
                planned[kind] = set(map(str, planned_seeds(STAGES[kind].arm)))
            if seed not in planned[kind]:
                del entries[name]
    return entries


def listed(stage: str, kind: str) -> list[str]:
    """Return the paths that ``dvc.yaml`` lists for a stage under ``deps``, ``outs`` or ``metrics``."""
    name, _, seed = stage.partition("@")
    try:
        entry = yaml.safe_load(Path("dvc.yaml").read_text(encoding="utf-8"))["stages"][name]
    except (OSError, KeyError, TypeError):
        return []
    return [str(item).replace("${item.seed}", seed) for item in entry.get(kind, ())]


def recorded(entry: Mapping[str, Any], kind: str) -> dict[str, str]:
    """Return DVC's digests by path of an entry's ``deps`` or ``outs``."""
    return {item["path"]: item["md5"] for item in entry.get(kind, ()) if "md5" in item}


def dvc_digest(path: Path) -> str:
    """Return the digest that DVC has of a file or folder: MD5, of a folder over its sorted listing.

    Raises:
        OSError: it is not there.
    """
    if not path.is_dir():
        return _md5(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    names = [file.relative_to(path).as_posix() for file in files]
    with ThreadPoolExecutor() as threads:  # hashing holds no lock of the interpreter
        digests = dict(zip(names, threads.map(_md5, files), strict=True))
    entries = [{"md5": digests[name], "relpath": name} for name in sorted(digests)]
    return f"{hashlib.md5(json.dumps(entries, sort_keys=True).encode(), usedforsecurity=False).hexdigest()}.dir"


def content_of(path: Path, md5: str) -> bytes | None:
    """Return the content of a file that DVC knows under a digest, from the file itself or DVC's cache, else None."""
    for place in (path, _cache() / "files" / "md5" / md5[:2] / md5[2:]):
        with contextlib.suppress(OSError):
            content = place.read_bytes()
            if hashlib.md5(content, usedforsecurity=False).hexdigest() == md5:
                return content
    return None


def _cache() -> Path:
    """Return the folder of DVC's cache, as its files of settings name it, each relative to its own place."""
    found = Path(".dvc/cache")
    everybodys = (Path(folder, "config") for folder in (system_config_dir(), global_config_dir()))
    for file in (*everybodys, Path(".dvc/config"), Path(".dvc/config.local")):
        settings = configparser.ConfigParser(interpolation=None)
        with contextlib.suppress(configparser.Error, UnicodeDecodeError):
            settings.read(file, encoding="utf-8")
            if named := settings.get("cache", "dir", fallback="").strip("\"'"):
                found = file.parent / named
    return found


def _md5(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


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
    outputs = {path: md5 for entry in lock.values() for path, md5 in recorded(entry, "outs").items()}
    inputs: dict[str, str] = {}
    for path in listed(stage, "deps"):
        if path == identity_file(stage).as_posix():
            continue
        if Path(path).parts[0] != _LARGE:
            inputs[path] = dvc_digest(Path(path))
        elif path in outputs:
            inputs[path] = outputs[path]
    return {_IDENTITY: dvc_digest(identity_file(stage)), _INPUTS: inputs}


def write_made(stage: str, began: Mapping[str, Any]) -> None:
    """Write the file of a stage that has ended; ``began`` is what `made_from` returned at its start.

    Raises:
        IdentityError: the identity was rewritten in between, and DVC would store the results under the new one.
    """
    identity = identity_file(stage)
    if dvc_digest(identity) != began[_IDENTITY]:
        raise IdentityError(f"{identity} was rewritten while the stage ran; run the same command again")
    outputs = [Path(path) for kind in ("outs", "metrics") for path in listed(stage, kind)]
    made = {path.as_posix(): dvc_digest(path) for path in outputs if path != made_file(stage)}
    write_json(made_file(stage), {**began, _OUTPUTS: made})


def remove_outdated() -> None:
    """Remove the files of results that the present identities did not make, so that ``dvc commit`` cannot store them.

    DVC refuses to commit a stage that lacks an output.  If the identity is as before again, it takes the file from its
    cache.
    """
    for file in MADE.glob("*.json"):
        if not identity_file(file.stem).is_file():
            continue  # of a training seed that is no longer planned; if it is again, its identity comes first
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
    false_records = {stage: paths for stage, entry in lock.items() if (paths := contradiction(stage, entry))}
    if false_records:
        order = list(STAGES)
        names = sorted(false_records, key=lambda name: (order.index(kind_of(name)), name))
        lines = "\n".join(f"  {name}: {', '.join(false_records[name])}" for name in names)
        raise IdentityError(
            "dvc.lock was rewritten without running the stage (`dvc commit --force`, `dvc exp save`), and attributes "
            f"these results to files with which they were not made:\n{lines}\n"
            f"make them anew: dvc repro --force --single-item {' '.join(names)}"
        )
