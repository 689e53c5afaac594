"""Make the problems of every split and write them with their manifest, which `splits` reads."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

from pipeline_lib.environment_api.registry import find
from pipeline_lib.problems.content import ProblemsError, check_disjoint
from pipeline_lib.problems.splits import MANIFEST
from pipeline_lib.storage import file_digest, write_json, write_jsonl


def prepare(kind: str, settings: Any, folder: Path, executor: Callable[[], Any] | None = None) -> dict[str, Any]:
    """Make the problems, split them and write ``<split>.jsonl`` and ``manifest.json`` into ``folder``.

    Args:
        kind: kind of the environment.
        settings: the ``problems`` section.
        folder: created if necessary; an old manifest is removed first, and the new one is written last.
        executor: makes the sandbox in which the environment checks the problems; without it, it does not check them.

    Returns:
        The manifest: ``environment`` (its kind), ``source``, ``seed``, ``settings`` and by split ``file``, ``digest``,
        ``count``, ``families``, ``ids`` and ``hashes``.

    Raises:
        ProblemsError: the source cannot be read, is empty or too small, a problem is in two splits, or the
            environment refuses some.
    """
    environment = find(kind)
    try:
        splits = environment.make_problems(settings)
        if executor is not None:
            environment.check_problems(list(chain.from_iterable(splits.values())), executor)
    except ProblemsError:
        raise
    except ValueError as error:
        raise ProblemsError(str(error)) from None
    hashes = {split: [problem.content_hash for problem in problems] for split, problems in splits.items()}
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
        "environment": kind,
        "source": settings.kind,
        "seed": settings.seed,
        "settings": settings.model_dump(mode="json"),
        "splits": entries,
    }
    write_json(folder / MANIFEST, manifest)
    return manifest
