"""Tables in files: rows of cells with their places."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline_lib import storage
from pipeline_lib.evaluation.outcomes import OutcomesError

#: Ends of the names of tables.
TABLES = (".csv", ".tsv", ".jsonl", ".parquet")


@dataclass(slots=True)
class Rows:
    """Rows of a file."""

    file: str  #: its name in messages
    rows: Sequence[tuple[str, Mapping[str, Any]]]  #: place and cells
    known: dict[str, str] = field(default_factory=dict)  #: what stands in for columns that the user did not name
    metrics: Sequence[str] | None = None  #: names of the metrics, where the program that wrote the file says so
    notes: list[str] = field(default_factory=list)  #: what a reader of the verdict must know about the file


def read_table(path: Path) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the rows of a .csv, .tsv, .jsonl or .parquet file, each with its place (``name, line 3``).

    Raises:
        OutcomesError: the file cannot be read, is damaged, or is of another kind.
    """
    suffix = path.suffix.lower()
    if suffix in (".csv", ".tsv"):
        return list(_csv(path, "\t" if suffix == ".tsv" else ","))
    if suffix == ".jsonl":
        return list(_jsonl(path))
    if suffix == ".parquet":
        return _parquet(path)
    raise OutcomesError(f"{path.name}: unknown kind of file; known are {', '.join(TABLES)}")


def _csv(path: Path, delimiter: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    reader = csv.reader(io.StringIO(text_of(path), newline=""), delimiter=delimiter, strict=True)
    read = 0  # lines of the rows so far
    try:
        heads = [head.strip() for head in next(reader, [])]
        if not any(heads):
            raise OutcomesError(f"{path.name}: the file is empty; its first row must name the columns")
        if len(heads) == 1 and (other := next((sign for sign in ";,\t" if sign in heads[0]), "")):
            raise OutcomesError(f"{path.name}, line 1: the columns are separated by {other!r}, not by {delimiter!r}")
        if repeated := [head for head in heads if heads.count(head) > 1]:
            raise OutcomesError(f"{path.name}, line 1: the column {repeated[0]!r} occurs twice")
        read = reader.line_num
        for cells in reader:
            read = reader.line_num
            place = f"{path.name}, line {read}"
            if not cells:
                continue  # an empty line
            if len(cells) != len(heads):
                raise OutcomesError(f"{place}: {len(cells)} cells, where line 1 names {len(heads)} columns")
            yield place, dict(zip(heads, cells, strict=True))
    except csv.Error as error:
        if str(error) == "unexpected end of data":
            raise OutcomesError(f"{path.name}, line {read + 1}: a quotation begins here and never ends") from None
        raise OutcomesError(f"{path.name}, line {reader.line_num}: {error}") from None


def _jsonl(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(text_of(path).split("\n"), start=1):
        if line.strip():
            place = f"{path.name}, line {number}"
            row = json_of(place, line)
            if not isinstance(row, dict):
                raise OutcomesError(f"{place}: not an object with a value for every column")
            yield place, row


def _parquet(path: Path) -> list[tuple[str, Mapping[str, Any]]]:
    # Only these files need it, and it loads a lot.
    import pyarrow.parquet

    try:
        rows = pyarrow.parquet.read_table(path).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise OutcomesError(
            f"{path.name}: not a Parquet file that can be read ({str(error).splitlines()[0]})"
        ) from None
    return [(f"{path.name}, row {number}", row) for number, row in enumerate(rows, start=1)]


def content_of(path: Path) -> bytes:
    """Return the bytes of a file; OutcomesError if it cannot be read."""
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise OutcomesError(f"{path}: {(reason or str(error)).lower()}") from None


def text_of(path: Path) -> str:
    """Return the text of a file; OutcomesError if it cannot be read or is not UTF-8."""
    content = content_of(path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise OutcomesError(f"{path.name}, line {line}: not UTF-8 text") from None


def json_of(place: str, text: str) -> Any:
    """Return the value of JSON; OutcomesError, which names the place, if it is none."""
    try:
        return storage.parse_json(text)
    except storage.RepeatedKeyError as error:
        raise OutcomesError(f"{place}: {error}") from None
    except RecursionError:
        reason = "nested too deeply"
    except ValueError as error:  # JSONDecodeError, or an integer of more than 4,300 digits
        reason = getattr(error, "msg", "a number is too long")
    raise OutcomesError(f"{place}: not JSON ({reason})")
