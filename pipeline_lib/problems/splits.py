"""Train, validation and test: written once, never overlapping, checked by everybody who reads them.

`prepare` writes one JSON-lines file per split and, last, a manifest with the id and content hash of every problem
and the digest of every file.  `load_split` compares the file with the manifest before it returns a problem, so a file
that was edited, mixed up or half-written is noticed and named.  It does not notice who changed file and manifest
consistently; that is what the version control of data is for.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_lib.problems.content import ProblemsError, check_disjoint, content_hash
from pipeline_lib.problems.generated import generate
from pipeline_lib.problems.problem import CodingProblem
from pipeline_lib.problems.scenarios import Scenario, generate_scenarios
from pipeline_lib.storage import CorruptFileError, digest, file_digest, read_json, read_jsonl, write_json, write_jsonl

if TYPE_CHECKING:
    from pipeline_lib.settings.problems import DatasetProblems, Problems

SPLITS = ("train", "validation", "test")
MANIFEST = "manifest.json"

Problem = CodingProblem | Scenario


def prepare(settings: Problems, folder: Path) -> dict[str, Any]:
    """Make the problems, split them and write ``<split>.jsonl`` and ``manifest.json`` into ``folder``.

    Args:
        settings: the ``problems`` section.
        folder: made if it is not there; a manifest that is there already becomes valid again only at the very end.

    Returns:
        The manifest: ``source``, ``seed``, ``settings`` and by split ``file``, ``digest``, ``count``, ``families``,
        ``ids`` and ``hashes``.

    Raises:
        ProblemsError: the source cannot be read, is empty or too small, or a problem is in two splits.
    """
    splits = _make(settings)
    hashes = {split: [_hash(problem) for problem in problems] for split, problems in splits.items()}
    check_disjoint({split: zip((p.id for p in splits[split]), hashes[split], strict=True) for split in splits})
    (folder / MANIFEST).unlink(missing_ok=True)
    entries = {}
    for split, problems in splits.items():
        path = folder / f"{split}.jsonl"
        write_jsonl(path, (problem.to_json() for problem in problems))
        entries[split] = {
            "file": path.name,
            "digest": file_digest(path),
            "count": len(problems),
            "families": len({problem.family for problem in problems}),
            "ids": [problem.id for problem in problems],
            "hashes": hashes[split],
        }
    manifest = {
        "source": settings.kind,
        "seed": settings.seed,
        "settings": settings.model_dump(mode="json"),
        "splits": entries,
    }
    write_json(folder / MANIFEST, manifest)
    return manifest


def load_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a folder of problems after checking that its splits are disjoint.

    Raises:
        ProblemsError: there is no manifest, or a problem is in two splits.
        CorruptFileError: the manifest is not what `prepare` writes.
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
    except (KeyError, TypeError, ValueError):
        raise CorruptFileError(f"{path}: not a manifest of problems; prepare the problems again") from None
    check_disjoint(pairs)
    return manifest


def load_split(folder: Path, split: str) -> list[Any]:
    """Return the problems of one split, checked against the manifest.

    Returns:
        `Scenario` objects if the manifest's source is ``scenarios`` (which may also have a split ``ood``), else
        `CodingProblem` objects.

    Raises:
        ProblemsError: no such split, nothing was prepared, or a problem is in two splits.
        CorruptFileError: the file is missing, or is not the one that the manifest describes.
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
        problems: list[Problem] = (
            [Scenario.from_json(row) for row in rows]
            if manifest["source"] == "scenarios"
            else [CodingProblem.from_json(row) for row in rows]
        )
    except TypeError as error:
        raise CorruptFileError(f"{path}: not a problem of this version of the project ({error}); {remedy}") from None
    found = [(problem.id, _hash(problem)) for problem in problems]
    for (name, content), expected in zip(found, zip(entry["ids"], entry["hashes"], strict=True), strict=False):
        if (name, content) != expected:
            raise CorruptFileError(f"{path}: problem {name!r} is not the one that {MANIFEST} lists; {remedy}")
    if len(found) != entry["count"]:
        raise CorruptFileError(f"{path}: holds {len(found)} problems, {MANIFEST} says {entry['count']}; {remedy}")
    return problems


def _make(settings: Problems) -> dict[str, list[Problem]]:
    """Return the problems by split, in the order in which they are written."""
    try:
        if settings.kind == "generated":
            return {split: [*found] for split, found in generate(settings).items()}
        if settings.kind == "scenarios":
            return {split: [*found] for split, found in generate_scenarios(settings).items() if found}
    except ValueError as error:
        raise ProblemsError(str(error)) from None
    from pipeline_lib.problems.datasets import read_dataset

    return {split: [*found] for split, found in _split(read_dataset(settings), settings).items()}


def _hash(problem: Problem) -> str:
    return problem.content_hash if isinstance(problem, Scenario) else content_hash(problem)


def _split(problems: Sequence[CodingProblem], settings: DatasetProblems) -> dict[str, list[CodingProblem]]:
    """Deal the problems of a dataset to the splits by their shares; copies of one problem stay together."""
    groups: dict[str, list[CodingProblem]] = {}
    for problem in problems:
        groups.setdefault(content_hash(problem), []).append(problem)
    order = list(groups.values())
    random.Random(digest(["split", settings.seed])).shuffle(order)
    sizes = {"validation": settings.validation, "test": settings.test}
    splits: dict[str, list[CodingProblem]] = {}
    start = 0
    for split, share in sizes.items():
        end = start + round(share * len(order))
        splits[split] = [problem for group in order[start:end] for problem in group]
        start = end
    splits["train"] = [problem for group in order[start:] for problem in group]
    for split, share in {**sizes, "train": 1 - sum(sizes.values())}.items():
        if not splits[split]:
            raise ProblemsError(
                f"problems.{split}: {len(order)} different problems leave none for the {split} split "
                f"(share {share:.2f}); use a larger source or other shares"
            )
    return {split: splits[split] for split in SPLITS}
