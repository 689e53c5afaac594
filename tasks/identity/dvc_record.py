"""What DVC has recorded in ``dvc.yaml``, ``dvc.lock`` and its cache, and digests of files as DVC computes them."""

from __future__ import annotations

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

from tasks.experiment.arms import IDENTITIES, planned_seeds
from tasks.identity.stages import STAGES

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
    """Return the file with the identity of a stage as DVC names it; the seeds of a stage share one."""
    return IDENTITIES / f"{kind_of(stage)}.json"


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
        found = dict(zip(names, threads.map(_md5, files), strict=True))
    entries = [{"md5": found[name], "relpath": name} for name in sorted(found)]
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
    """Return the folder of DVC's cache, as the project's own files of settings name it."""
    settings = configparser.ConfigParser(interpolation=None)
    with contextlib.suppress(configparser.Error, UnicodeDecodeError):
        settings.read([".dvc/config", ".dvc/config.local"], encoding="utf-8")
    return Path(".dvc") / settings.get("cache", "dir", fallback="cache").strip("\"'")


def _md5(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
