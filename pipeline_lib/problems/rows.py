"""Rows of a dataset, from the hub or from a file with the published fields, and the splits that a file deals out."""

from __future__ import annotations

import ast
import difflib
import gzip
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.problems.splits import SPLITS

if TYPE_CHECKING:
    from pipeline_lib.settings.problems import PublishedProblems

P = TypeVar("P")

Fields = Mapping[str, Any]
"""The values of a row by the names of its fields."""

_FORMATS = {".jsonl": "json", ".jsonl.gz": "json", ".json": "json", ".parquet": "parquet"}


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a dataset."""

    fields: Mapping[str, Any]  #: values by name
    source: str  #: the file or hub id, for messages
    place: str  #: where the row stands, for messages: ``mine.jsonl:3``, or ``mine.parquet: row 3``, counted from 1
    split: str  #: the split that the file puts it in; empty where problems are dealt out by their shares


def text_field(fields: Mapping[str, Any], name: str, where: str = "") -> str:
    """Return a text of a row that must be there.

    Args:
        fields: values by name.
        name: the field.
        where: the field that these fields are part of, for messages, such as ``methods_info[0].``.

    Raises:
        ProblemsError: the field is missing, empty, or no text.
    """
    value = fields.get(name)
    if value is None or (isinstance(value, str) and not value.strip()):
        filled = sorted(str(field) for field, content in fields.items() if content not in (None, "") and field != name)
        raise ProblemsError(f"the field {where}{name} is missing; it has {', '.join(filled)}")
    if not isinstance(value, str):
        raise ProblemsError(f"the field {where}{name} must be a text, got {_short(value)}")
    return value


def python_field(source: str, what: str) -> ast.Module:
    """Return the syntax tree of Python in a row; ``what`` says where it stands, such as ``the field code``.

    Raises:
        ProblemsError: it is not Python.
    """
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise ProblemsError(f"{what} is not Python ({error})") from None


def list_field(fields: Mapping[str, Any], name: str, item: type, items: str) -> list[Any]:
    """Return a list of a row; an absent one is empty.

    Args:
        fields: values by name.
        name: the field.
        item: what each item must be.
        items: the same in words, for messages.

    Raises:
        ProblemsError: the field is no list, or one of its items is of another type.
    """
    value = fields.get(name)
    values = [] if value is None else value
    if not isinstance(values, list) or not all(isinstance(each, item) for each in values):
        raise ProblemsError(f"the field {name} must be a list of {items}, got {_short(value)}")
    return values


def read_rows(source: str, published: str, subset: str | None, revision: str) -> list[Row]:
    """Return the rows of all published splits, which the hub's datasets pool.

    If rows of a file have the field ``split``, all must have it: the file says which problems are in which split.

    Args:
        source: path of a file, or a hub id; empty for ``published``.
        published: hub id of the dataset as published.
        subset: name of the dataset's configuration, or None.
        revision: hub revision.

    Raises:
        ProblemsError: the source does not exist, cannot be read or is empty, or a row's ``split`` is not a split.
    """
    import datasets  # takes a second to load, and only reading a dataset needs it

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
            raise ProblemsError(f"{path}: the dataset is empty")
        with tempfile.TemporaryDirectory() as cache:
            try:
                table = datasets.load_dataset(layout, data_files=str(path), cache_dir=cache, split="train")
            except Exception as error:  # `datasets` wraps all errors of its parsers
                raise ProblemsError(
                    f"problems.source: {path}: not readable as {layout} ({_first_line(error)})"
                ) from None
            return _of_file(list(table), path)
    name = source or published
    try:
        splits = datasets.load_dataset(name, subset if name == published else None, revision=revision)
    except Exception as error:  # no network, no such dataset, no such revision: the library has no common type
        raise ProblemsError(
            f"problems.source: the hub did not provide {name!r} ({_first_line(error)}); without a connection, set "
            "problems.source to the path of a .jsonl, .jsonl.gz, .json or .parquet file"
        ) from None
    rows = [row for split in splits.values() for row in split]
    return [Row(row, name, f"{name}: row {number}", "") for number, row in enumerate(_some(rows, name), 1)]


def published_problems(
    settings: PublishedProblems,
    published: tuple[str, str | None],
    name_of: Callable[[int, Fields], str],
    make: Callable[[str, Fields], P | None],
) -> Iterator[tuple[P, Row]]:
    """Yield the problems of a dataset in published order with their rows, without those that settings leave out.

    Args:
        settings: the ``problems`` section.
        published: hub id of the dataset as published, and the name of its configuration, or None.
        name_of: returns the id of the problem of a row, given the row's number, from 0.
        make: returns the problem of a row, given its id; None if it is of no use.

    Raises:
        ProblemsError: as `read_rows`; or a problem cannot be made, and the message names it and where it stands; or
            there is no problem that settings leave out, or none is left.
    """
    rows = read_rows(settings.source, *published, settings.revision)
    names = [name_of(number, row.fields) for number, row in enumerate(rows)]
    if unknown := [name for name in settings.leave_out if name not in names]:
        missing = " and no problem ".join(f"{name!r}{_near(name, names)}" for name in unknown)
        raise ProblemsError(f"problems.leave_out: {rows[0].source} has no problem {missing}")
    if set(names) <= set(settings.leave_out):
        raise ProblemsError(f"problems.leave_out: all problems of {rows[0].source} are left out")
    for row, name in zip(rows, names, strict=True):
        if name not in settings.leave_out:
            try:
                problem = make(name, row.fields)
            except ProblemsError as error:
                raise ProblemsError(f"{row.place}: problem {name}: {error}") from None
            if problem is not None:
                yield problem, row


def _near(word: object, words: Sequence[str], least: float = 0.6) -> str:
    near = difflib.get_close_matches(str(word), words, n=1, cutoff=least)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _some(rows: list[Mapping[str, Any]], source: str) -> list[Mapping[str, Any]]:
    if not rows:
        raise ProblemsError(f"{source}: the dataset is empty")
    return rows


def _of_file(rows: list[Mapping[str, Any]], path: Path) -> list[Row]:
    places = _places(_some(rows, str(path)), path)
    dealt = any(row.get("split") is not None for row in rows)
    return [
        Row(row, str(path), place, _split(row, place) if dealt else "") for row, place in zip(rows, places, strict=True)
    ]


def _places(rows: Sequence[Any], path: Path) -> list[str]:
    """Return where each row stands: its line where each line that is not blank holds one, else its number."""
    if path.suffix != ".parquet" and not path.name.endswith(".json"):
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            lines = [number for number, line in enumerate(file, 1) if line.strip()]
        if len(lines) == len(rows):
            return [f"{path}:{line}" for line in lines]
    return [f"{path}: row {number}" for number in range(1, len(rows) + 1)]


def _split(row: Mapping[str, Any], place: str) -> str:
    accepted = f"accepted: {', '.join(SPLITS)}"
    split = row.get("split")
    if split is None:
        raise ProblemsError(f"{place}: the field split is missing, and other rows have it; {accepted}")
    if split not in SPLITS:
        raise ProblemsError(f"{place}: split: got {split!r}; {accepted}{_near(split, SPLITS, 0.4)}")
    return str(split)


def _is_empty(path: Path) -> bool:
    """Return whether a JSON file has no rows; `datasets` gives no clear error for it."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return file.read(64).strip() in (b"", b"[]")
    except OSError:
        return False


def _looks_like_a_file(source: str) -> bool:
    return Path(source).exists() or source.startswith((".", "/", "~")) or source.endswith(tuple(_FORMATS))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _first_line(error: BaseException) -> str:
    """Return the first line of the first error in a chain of them."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]
