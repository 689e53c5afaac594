"""Makes the problems of every split and writes them with their manifest, which `splits` reads."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_lib.environments.coding.problems.generated import generate
from pipeline_lib.environments.coding.problems.problem import CodingProblem
from pipeline_lib.environments.philosophers.scenarios import generate_scenarios
from pipeline_lib.problems.content import ProblemsError, check_disjoint, content_hash
from pipeline_lib.problems.splits import MANIFEST, SPLITS, Problem, hash_of
from pipeline_lib.storage import digest, file_digest, write_json, write_jsonl

if TYPE_CHECKING:
    from pipeline_lib.settings.problems import DatasetProblems, Problems


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
    hashes = {split: [hash_of(problem) for problem in problems] for split, problems in splits.items()}
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


def _make(settings: Problems) -> dict[str, list[Problem]]:
    """Return the problems by split, in the order in which they are written."""
    try:
        if settings.kind == "generated":
            return {split: [*found] for split, found in generate(settings).items()}
        if settings.kind == "scenarios":
            return {split: [*found] for split, found in generate_scenarios(settings).items() if found}
    except ValueError as error:
        raise ProblemsError(str(error)) from None
    from pipeline_lib.environments.coding.problems.datasets import read_dataset

    return {split: [*found] for split, found in _split(read_dataset(settings), settings).items()}


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
