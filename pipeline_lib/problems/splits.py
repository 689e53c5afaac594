"""Train, validation and test splits: written once, disjoint, and verified whenever they are read.

`pipeline_lib.problems.prepare` writes one JSON-lines file per split and, last, a manifest with the id and content hash
of every problem and the digest of every file.  `load_split` compares the file with the manifest before it returns a
problem, so an edited, exchanged or incomplete file is detected and named.  A consistent change of file and manifest is
not detected; DVC's version control detects it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline_lib.environment_api.registry import find
from pipeline_lib.problems.content import ProblemsError, check_disjoint
from pipeline_lib.storage import CorruptFileError, file_digest, read_json, read_jsonl

SPLITS = ("train", "validation", "test")
MANIFEST = "manifest.json"


def load_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a folder of problems after checking that its splits are disjoint.

    Raises:
        ProblemsError: there is no manifest, or a problem is in two splits.
        CorruptFileError: the manifest was not written by `prepare`.
    """
    path = folder / MANIFEST
    try:
        manifest: dict[str, Any] = read_json(path)
    except FileNotFoundError:
        raise ProblemsError(
            f"{path}: there is no manifest; prepare the problems first (`dvc repro prepare` or `dvc pull`)"
        ) from None
    try:
        entries = {split: manifest["splits"][split] for split in (*SPLITS, *manifest["splits"])}
        pairs = {split: list(zip(e["ids"], e["hashes"], strict=True)) for split, e in entries.items()}
        manifest["environment"]
    except (KeyError, TypeError, ValueError):
        raise CorruptFileError(f"{path}: not a manifest of problems; prepare the problems again") from None
    check_disjoint(pairs)
    return manifest


def load_split(folder: Path, split: str) -> list[Any]:
    """Return the problems of one split, checked against the manifest.

    Returns:
        Problems of the manifest's environment.

    Raises:
        ProblemsError: no such split, nothing was prepared, or a problem is in two splits.
        CorruptFileError: the file is missing, or does not match the manifest.
    """
    manifest = load_manifest(folder)
    if split not in manifest["splits"]:
        raise ProblemsError(f"there is no split {split!r}; splits are {', '.join(manifest['splits'])}")
    entry = manifest["splits"][split]
    path = folder / entry["file"]
    remedy = "restore it (`dvc checkout`) or prepare the problems again"
    if not path.is_file():
        raise CorruptFileError(f"{path}: missing, though {MANIFEST} lists it; {remedy}")
    if file_digest(path) != entry["digest"]:
        raise CorruptFileError(f"{path}: its content does not match the digest in {MANIFEST}; {remedy}")
    try:
        rows = read_jsonl(path)
        environment = find(manifest["environment"])
        problems = [environment.read_problem(row) for row in rows]
    except TypeError as error:
        raise CorruptFileError(f"{path}: not a problem of this version of the project ({error}); {remedy}") from None
    loaded = [(problem.id, problem.content_hash) for problem in problems]
    for (name, content), expected in zip(loaded, zip(entry["ids"], entry["hashes"], strict=True), strict=False):
        if (name, content) != expected:
            raise CorruptFileError(f"{path}: problem {name!r} is not the one that {MANIFEST} lists; {remedy}")
    if len(loaded) != entry["count"]:
        raise CorruptFileError(f"{path}: holds {len(loaded)} problems, {MANIFEST} says {entry['count']}; {remedy}")
    return problems
