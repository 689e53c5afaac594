"""Rows of a published dataset, from the hub or from a file with the published fields."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline_lib.problems.content import ProblemsError

_FORMATS = {".jsonl": "json", ".jsonl.gz": "json", ".json": "json", ".parquet": "parquet"}

Row = Mapping[str, Any]


def read_rows(source: str, published: str, subset: str | None, revision: str) -> tuple[list[Row], str]:
    """Return the rows of all splits, and a name of the source for messages.

    Args:
        source: path of a file, or a hub id; empty for ``published``.
        published: hub id of the dataset as published.
        subset: name of the dataset's configuration, or None.
        revision: hub revision.

    Raises:
        ProblemsError: the source does not exist or cannot be read.
    """
    import datasets

    # the caller reports progress
    datasets.disable_progress_bars()
    if source and _looks_like_a_file(source):
        path = Path(source).expanduser()
        layout = next((_FORMATS[end] for end in _FORMATS if path.name.endswith(end)), None)
        if layout is None:
            raise ProblemsError(f"problems.source: {path}: expected a file ending in {', '.join(_FORMATS)}")
        if not path.is_file():
            raise ProblemsError(f"problems.source: {path}: there is no such file (looked in {Path.cwd()})")
        if layout == "json" and _is_empty(path):
            return [], str(path)
        with tempfile.TemporaryDirectory() as cache:
            try:
                table = datasets.load_dataset(layout, data_files=str(path), cache_dir=cache, split="train")
            except Exception as error:  # the library wraps whatever the parser raises
                raise ProblemsError(
                    f"problems.source: {path}: not readable as {layout} ({_first_line(error)})"
                ) from None
            return list(table), str(path)
    name = source or published
    try:
        found = datasets.load_dataset(name, subset if name == published else None, revision=revision)
    except Exception as error:  # no network, no such dataset, no such revision: the library has no common type
        raise ProblemsError(
            f"problems.source: the hub did not provide {name!r} ({_first_line(error)}); without a connection, set "
            "problems.source to the path of a .jsonl, .jsonl.gz, .json or .parquet file"
        ) from None
    return [row for split in found.values() for row in split], name


def _is_empty(path: Path) -> bool:
    """Return whether a JSON file has no rows; `datasets` gives no clear error for it."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return file.read(64).strip() in (b"", b"[]")
    except OSError:
        return False


def _looks_like_a_file(source: str) -> bool:
    return Path(source).exists() or source.startswith((".", "/", "~")) or source.endswith(tuple(_FORMATS))


def _first_line(error: BaseException) -> str:
    """Return the first line of the first error in a chain of them."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]
