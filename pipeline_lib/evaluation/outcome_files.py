"""Outcomes in files: tables, and the logs of other programs, each recognised by its content."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pipeline_lib.evaluation import outcome_logs
from pipeline_lib.evaluation.cells import flat, id_of, label_of, value_of, whole_of
from pipeline_lib.evaluation.outcomes import Outcome, OutcomesError
from pipeline_lib.evaluation.table_files import TABLES, Rows, content_of, json_of, read_table, text_of

#: Ends of the names of files that can be read.
SUFFIXES = (*TABLES, ".eval", ".json")


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table; None: the column of the same name, if there is one."""

    problem: str | None = None  #: id of the problem
    system: str | None = None  #: name of the system
    value: str | None = None  #: the metric; None also stands for the only metric of a log
    sample: str | None = None  #: number of the sample
    seed: str | None = None  #: training seed
    family: str | None = None  #: cluster of the problem


def read_outcomes(files: Sequence[str], columns: Columns) -> tuple[list[Outcome], str, list[str]]:
    """Return the outcomes in files, the name of the metric, and notes about the files.

    ``NAME=PATH`` names the system of a file that does not say which.  ``columns`` are those of tables, and of logs
    where they differ from what the program writes.

    Raises:
        OutcomesError: a file or a row is wrong; the message names file, row and column.
    """
    found: list[Outcome] = []
    notes: list[str] = []
    metrics: dict[str, str] = {}
    seen: dict[str, Path] = {}
    for given in files:
        name, path = _named(given)
        content = f"{name}={hashlib.sha256(content_of(path)).hexdigest()}"
        if content in seen:
            raise OutcomesError(f"{path} has the same content as {seen[content]}; give every outcome once")
        seen[content] = path
        rows = _rows(path)
        outcomes, metric = _outcomes(rows, columns, name)
        found += outcomes
        metrics.setdefault(metric, rows.file)
        notes += rows.notes
    if len(metrics) > 1:
        told = " and ".join(f"{metric!r} in {file}" for metric, file in metrics.items())
        raise OutcomesError(f"the files have different metrics: {told}; --value names one")
    return found, next(iter(metrics)), notes


def outcomes_of(rows: Sequence[Mapping[str, Any]], columns: Columns) -> tuple[list[Outcome], str]:
    """Return the outcomes of rows in memory, and the name of the metric; errors as in `read_outcomes`."""
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise OutcomesError(f"row {number} is {row!r}; it must have a value for every column")
    return _outcomes(Rows("the rows", [(f"row {i}", row) for i, row in enumerate(rows, start=1)]), columns, "")


def _named(given: str) -> tuple[str, Path]:
    name, equals, path = given.partition("=")
    if not equals or Path(given).exists():
        return "", Path(given)
    if not name.strip() or not path:
        raise OutcomesError(f"{given!r}: give FILE, or NAME=FILE for the file of one system")
    return name, Path(path)


def _rows(path: Path) -> Rows:
    suffix = path.suffix.lower()
    if suffix in TABLES:
        rows = read_table(path)
        keys: Mapping[str, Any] = rows[0][1] if rows else {}
        if suffix == ".jsonl" and {"doc_id", "filter", "metrics", "doc_hash"} <= set(keys):
            return outcome_logs.lm_eval(path, rows)
        if suffix == ".jsonl" and {"example_id", "reward", "metrics", "is_completed", "is_truncated"} <= set(keys):
            return outcome_logs.verifiers(path, rows)
        if suffix == ".jsonl" and {"env", "task", "traces", "ok"} <= set(keys):
            return outcome_logs.verifiers_traces(path, rows)
        if suffix == ".parquet" and {"step", "prompt", "completion", "advantage"} <= set(keys):
            return outcome_logs.trl(path, rows)
        return Rows(path.name, rows)
    if suffix == ".eval":
        return outcome_logs.inspect(path, outcome_logs.inspect_log(path))
    if suffix == ".json":
        log = json_of(path.name, text_of(path))
        if isinstance(log, dict) and {"eval", "samples", "status"} <= set(log):
            return outcome_logs.inspect(path, log)
        raise OutcomesError(f"{path.name}: a .json file must be a log of Inspect with samples; write tables as .jsonl")
    raise OutcomesError(f"{path.name}: unknown kind of file; known are {', '.join(SUFFIXES)}")


def _outcomes(rows: Rows, columns: Columns, name: str) -> tuple[list[Outcome], str]:
    """Return the outcomes of a file, and the name of its metric; ``name`` is the system if the user named it, else
    empty.
    """
    if not rows.rows:
        raise OutcomesError(f"{rows.file}: there are no rows of outcomes")
    read = [(place, flat(place, row)) for place, row in rows.rows]
    heads = dict.fromkeys(head for _, cells in read for head in cells)
    at = {part.name: _column(part.name, columns, rows, list(heads), name) for part in fields(Columns)}
    found = []
    for place, cells in read:
        found.append(
            Outcome(
                problem=label_of(place, cells, at["problem"]),
                system=name or label_of(place, cells, at["system"]),
                value=value_of(place, cells, str(at["value"])),
                sample=whole_of(place, cells, at["sample"]),
                seed=whole_of(place, cells, at["seed"]),
                family=id_of(place, cells, at["family"]),
                place=place,
            )
        )
    return found, str(at["value"])


def _column(part: str, columns: Columns, rows: Rows, heads: Sequence[str], name: str) -> str | None:
    """Return the column of a part of an outcome; None if there is none and none is needed."""
    given: str | None = getattr(columns, part)
    if part == "system" and name:
        if given is not None or (rows.metrics is None and part in heads and part not in rows.known):
            raise OutcomesError(f"{rows.file}: the file has a column for the system; leave out {name + '='!r}")
        return None
    if given is not None:
        if given in heads:
            return given
        raise OutcomesError(f"{rows.file}: there is no column {given!r} (--{part}){_near(given, heads)}")
    if part in rows.known:
        return rows.known[part]
    if part == "value" and rows.metrics is not None:
        if len(rows.metrics) == 1:
            return rows.metrics[0]
        told = ", ".join(rows.metrics)
        raise OutcomesError(
            f"{rows.file}: the file has {len(rows.metrics)} metrics ({told}); --value names one"
            if rows.metrics
            else f"{rows.file}: the file has no metric"
        )
    if part in heads:
        return part
    if part in ("sample", "seed", "family"):
        return None
    instead = ", or NAME=FILE the system of the whole file" if part == "system" else ""
    raise OutcomesError(
        f"{rows.file}: there is no column {part!r}{_near(part, heads)}; --{part} names another column{instead}"
    )


def _near(name: str, heads: Collection[str]) -> str:
    """Return what the file has, the names that resemble the wanted one first in words."""
    lower = {head.lower(): head for head in heads}
    close = [lower[word] for word in difflib.get_close_matches(name.lower(), lower)]
    if close:
        return f"; did you mean {' or '.join(close)}?"
    shown = sorted(heads)
    return f"; there are: {', '.join(shown[:12])}{' and more' if len(shown) > 12 else ''}"
