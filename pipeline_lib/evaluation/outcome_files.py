"""Outcomes of systems that something else ran: rows of problem, system and value, arranged as tables.

A row is what the chain calls an episode.  What the rows do not say is never made up: a value that is missing, that is
not a number, or that occurs twice with different numbers is a lost episode (`comparison.Losses`), and a note says so.

Readers of files of outcomes: tables, and the logs of other programs, each recognised by its content.

Every reader turns a file into rows with their places; `read_outcomes` takes problem, system and value from the columns.
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import importlib
import io
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pipeline_lib import storage
from pipeline_lib.environment_api.metrics import GREATEST, Metric
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.results import EvaluationError
from pipeline_lib.evaluation.table import Table, tabulate


class OutcomesError(EvaluationError):
    """A file of outcomes, or what is asked of it, is wrong; the message names the file, the row and the column."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row."""

    problem: str  #: id of the problem
    system: str  #: what produced it
    value: float | None  #: the metric, greater is better; None if it is missing or not a number
    sample: int | None = None  #: number among the samples of the problem, or None if the rows have none
    seed: int | None = None  #: training seed, or None for a system without
    family: str = ""  #: cluster of the problem; empty: the problem is its own
    place: str = ""  #: file and row, for messages


def describe_values(name: str, outcomes: Iterable[Outcome], given: tuple[float, float] | None = None) -> Metric:
    """Return the metric: its range is the given one; values that are all 0 or 1 are a share.

    Raises:
        OutcomesError: a value lies outside the given range.
    """
    if given is None:
        share = all(one.value in (0.0, 1.0) for one in outcomes if one.value is not None)
        return Metric(name, share=share)
    low, high = given
    for one in outcomes:
        if one.value is not None and not low <= one.value <= high:
            raise OutcomesError(f"{one.place}: {name!r} is {one.value:g}, outside the range {low:g} to {high:g}")
    return Metric(name, share=given == (0.0, 1.0), low=low, high=high)


def arrange(outcomes: Sequence[Outcome]) -> tuple[dict[str, Table], list[str]]:
    """Return the tables of all systems, in the order of the rows, and what the rows do not support, a sentence each.

    Raises:
        OutcomesError: no rows, a problem in two families, or samples or seeds that only some rows have.
    """
    if not outcomes:
        raise OutcomesError("there are no outcomes")
    families = _families(outcomes)
    _all_or_none(outcomes)
    ranks = _ranks(outcomes)
    by_system: dict[str, list[Outcome]] = defaultdict(list)
    for one in outcomes:
        by_system[one.system].append(one)
    notes: list[str] = []
    return {name: _table(name, rows, families, ranks, notes) for name, rows in by_system.items()}, notes


def _families(outcomes: Sequence[Outcome]) -> dict[str, str]:
    first: dict[str, Outcome] = {}
    for one in outcomes:
        known = first.setdefault(one.problem, one)
        if known.family != one.family:
            raise OutcomesError(
                f"{one.place}: problem {one.problem!r} is of family {one.family!r} here, and of family "
                f"{known.family!r} in {known.place}"
            )
    return {problem: one.family or problem for problem, one in first.items()}


def _all_or_none(outcomes: Sequence[Outcome]) -> None:
    """Refuse samples that only some rows have, and seeds that only some rows of a system have."""
    with_samples = {one.sample is not None: one for one in outcomes}
    if len(with_samples) > 1:
        raise OutcomesError(
            f"{with_samples[False].place}: there is no number of the sample, and {with_samples[True].place} has one; "
            "give it in every row or in none"
        )
    seen: dict[tuple[str, bool], Outcome] = {}
    for one in outcomes:
        seen[one.system, one.seed is not None] = one
    for (system, trained), one in seen.items():
        if not trained and (system, True) in seen:
            raise OutcomesError(
                f"{one.place}: {system!r} has no training seed here, and one in {seen[system, True].place}; give it "
                "in every row of a system or in none"
            )


def _ranks(outcomes: Sequence[Outcome]) -> dict[tuple[str, int], int]:
    """Return the place of each sample number among those of its problem, over all systems, which are paired by it."""
    numbers: dict[str, set[int]] = defaultdict(set)
    for one in outcomes:
        if one.sample is not None:
            numbers[one.problem].add(one.sample)
    return {(problem, n): i for problem, found in numbers.items() for i, n in enumerate(sorted(found))}


def _table(
    name: str,
    rows: Sequence[Outcome],
    families: Mapping[str, str],
    ranks: Mapping[tuple[str, int], int],
    notes: list[str],
) -> Table:
    cells: dict[tuple[int | None, str, int], list[Outcome]] = defaultdict(list)
    count: Counter[tuple[int | None, str]] = Counter()
    for one in rows:
        group = one.seed, one.problem
        sample = count[group] if one.sample is None else ranks[one.problem, one.sample]
        count[group] += 1
        cells[(*group, sample)].append(one)
    if not ranks and max(count.values()) > 1:
        notes.append(
            f"rows of {name} have no sample numbers, so repeated rows of a problem count as further samples, in the "
            "order of the rows; a row that was written twice would count twice"
        )
    repeated = [same for same in cells.values() if len(same) > 1]
    for differ, then in (
        (False, "the same value, for example {}, and counts once"),
        (True, "different values, for example {}: none of them counts, and the value is taken as lost"),
    ):
        if several := [same for same in repeated if (len({one.value for one in same}) > 1) == differ]:
            who = "1 outcome" if len(several) == 1 else f"each of {len(several)} outcomes"
            first, second = several[0][:2]
            example = f"problem {first.problem!r} in {first.place} and {second.place}"
            notes.append(f"{who} of {name} occurs more than once with {then.format(example)}")
    if missing := [same[0] for same in cells.values() if all(one.value is None for one in same)]:
        number = f"1 value of {name} is" if len(missing) == 1 else f"{len(missing)} values of {name} are"
        notes.append(f"{number} missing or not a number, for example in {missing[0].place}")
    episodes: dict[int | None, list[EpisodeRecord]] = defaultdict(list)
    for (seed, problem, sample), same in cells.items():
        value = same[0].value if len({one.value for one in same}) == 1 else None
        episodes[seed].append(EpisodeRecord(problem, families[problem], sample, value, 1, {}, {}, 0))
    trained = {seed: records for seed, records in episodes.items() if seed is not None}
    return tabulate(trained or episodes[None], "reward", name)


#: Words for a value that is not there.
_MISSING = {"", "na", "n/a", "nan", "none", "null"}
_WORDS = {"true": 1.0, "false": 0.0}
#: Values of Inspect's scorers, as its own `value_to_float` reads them.
_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, "yes": 1.0, "no": 0.0}
_TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
SUFFIXES = (*_TABLES, ".eval", ".json")


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table; None: the column of the same name, if there is one."""

    problem: str | None = None  #: id of the problem
    system: str | None = None  #: name of the system
    value: str | None = None  #: the metric; None also stands for the only metric of a log
    sample: str | None = None  #: number of the sample
    seed: str | None = None  #: training seed
    family: str | None = None  #: cluster of the problem


@dataclass(slots=True)
class _Rows:
    """Rows of a file."""

    file: str  #: its name in messages
    rows: Sequence[tuple[str, Mapping[str, Any]]]  #: place and cells
    known: dict[str, str] = field(default_factory=dict)  #: what stands in for columns that the user did not name
    metrics: Sequence[str] | None = None  #: names of the metrics, where the program that wrote the file says so
    notes: list[str] = field(default_factory=list)  #: what a reader of the verdict must know about the file


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
        content = f"{name}={hashlib.sha256(_bytes(path)).hexdigest()}"
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
    return _outcomes(_Rows("the rows", [(f"row {i}", row) for i, row in enumerate(rows, start=1)]), columns, "")


def _named(given: str) -> tuple[str, Path]:
    name, equals, path = given.partition("=")
    if not equals or Path(given).exists():
        return "", Path(given)
    if not name.strip() or not path:
        raise OutcomesError(f"{given!r}: give FILE, or NAME=FILE for the file of one system")
    return name, Path(path)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise OutcomesError(f"{path}: {(reason or str(error)).lower()}") from None


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
    raise OutcomesError(f"{path.name}: unknown kind of file; known are {', '.join(_TABLES)}")


def _rows(path: Path) -> _Rows:
    suffix = path.suffix.lower()
    if suffix in _TABLES:
        rows = read_table(path)
        keys: Mapping[str, Any] = rows[0][1] if rows else {}
        if suffix == ".jsonl" and {"doc_id", "filter", "metrics", "doc_hash"} <= set(keys):
            return _lm_eval(path, rows)
        if suffix == ".jsonl" and {"example_id", "reward", "metrics", "is_completed", "is_truncated"} <= set(keys):
            return _verifiers(path, rows)
        if suffix == ".jsonl" and {"env", "task", "traces", "ok"} <= set(keys):
            return _verifiers_traces(path, rows)
        if suffix == ".parquet" and {"step", "prompt", "completion", "advantage"} <= set(keys):
            return _trl(path, rows)
        return _Rows(path.name, rows)
    if suffix == ".eval":
        return _inspect(path, _inspect_log(path))
    if suffix == ".json":
        log = _json(path.name, _text(path))
        if isinstance(log, dict) and {"eval", "samples", "status"} <= set(log):
            return _inspect(path, log)
        raise OutcomesError(f"{path.name}: a .json file must be a log of Inspect with samples; write tables as .jsonl")
    raise OutcomesError(f"{path.name}: unknown kind of file; known are {', '.join(SUFFIXES)}")


# Tables


def _csv(path: Path, delimiter: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    reader = csv.reader(io.StringIO(_text(path), newline=""), delimiter=delimiter, strict=True)
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
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if line.strip():
            place = f"{path.name}, line {number}"
            row = _json(place, line)
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


def _text(path: Path) -> str:
    content = _bytes(path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise OutcomesError(f"{path.name}, line {line}: not UTF-8 text") from None


def _json(place: str, text: str) -> Any:
    try:
        return storage.parse_json(text)
    except storage.RepeatedKeyError as error:
        raise OutcomesError(f"{place}: {error}") from None
    except RecursionError:
        reason = "nested too deeply"
    except ValueError as error:  # JSONDecodeError, or an integer of more than 4,300 digits
        reason = getattr(error, "msg", "a number is too long")
    raise OutcomesError(f"{place}: not JSON ({reason})")


# Logs of other programs


def _lm_eval(path: Path, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> _Rows:
    """Samples of lm-eval (``--log_samples``): the folder names the model, the file the task.

    A problem is its number and the digest of its text, so other problems under the same number are not paired.
    """
    task = path.stem.removeprefix("samples_").rpartition("_")[0] or path.stem
    filters = {str(row.get("filter")) for _, row in rows}
    found, metrics = [], set()
    for place, row in rows:
        cells = dict(row)
        for metric in _list(place, row, "metrics"):
            name = f"{metric},{row['filter']}" if len(filters) > 1 else str(metric)
            cells[name] = _cell(place, row, str(metric))
            metrics.add(name)
        cells["problem"] = f"{task}/{_cell(place, row, 'doc_id')}/{str(_cell(place, row, 'doc_hash'))[:8]}"
        cells["system"] = path.absolute().parent.name
        found.append((place, cells))
    return _Rows(path.name, found, {"problem": "problem", "system": "system"}, sorted(metrics))


def _verifiers(path: Path, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> _Rows:
    """Results of verifiers' ``vf-eval --save-results``: environment and model are in ``metadata.json`` beside them.

    A problem is environment, number and digest of the prompt: another split of the data has other problems under the
    same numbers.  System messages are left out of the digest, so two system prompts can be compared.
    """
    beside = path.with_name("metadata.json")
    if not beside.is_file():
        raise OutcomesError(f"{path}: verifiers' metadata.json, which names model and environment, is not beside it")
    about = _json(str(beside), _text(beside))
    for name in ("env_id", "model"):
        if not isinstance(about, dict) or not isinstance(about.get(name), str) or not about[name].strip():
            raise OutcomesError(f"{beside}: {name!r} is missing")
    folder = path.absolute().parent.name  # every file is called results.jsonl
    found = []
    for line, row in rows:
        place = f"{folder}/{line}"
        cells = dict(row)
        scores = _cell(place, row, "metrics")
        if not isinstance(scores, Mapping):
            raise OutcomesError(f"{place}: 'metrics' is not an object")
        cells |= {**scores, "reward": _cell(place, row, "reward")}
        if row.get("error"):
            # verifiers gives a rollout that broke off 0 for everything, which nobody measured: it is lost.
            cells |= dict.fromkeys([*scores, "reward"])
        prompt = _cell(place, row, "prompt")
        if isinstance(prompt, list):
            prompt = [said for said in prompt if not isinstance(said, Mapping) or said.get("role") != "system"]
        number = _label(place, row, "example_id")
        cells["problem"] = f"{about['env_id']}/{number}/{storage.digest(prompt)[:8]}"
        cells["system"] = about["model"]
        found.append((place, cells))
    sizes = about.get("num_examples"), about.get("rollouts_per_example")
    notes = []
    if all(isinstance(size, int) for size in sizes) and len(rows) != sizes[0] * sizes[1]:
        notes.append(f"{path}: {len(rows)} rollouts, where metadata.json says {sizes[0]} examples of {sizes[1]} each")
    known = {"problem": "problem", "system": "system", "value": "reward"}
    return _Rows(f"{folder}/{path.name}", found, known, notes=notes)


def _verifiers_traces(path: Path, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> _Rows:
    """Episodes of verifiers from 0.4 on: each has the traces of its agents, with their rewards and metrics.

    A problem is the environment and the key of the task (the digest of its data), the system the models of the agents.
    Of several agents the reward of each is a metric, ``solver/reward``, since no reward of the team is recorded.
    """
    folder, found, metrics = path.absolute().parent.name, [], dict[str, None]()
    for line, row in rows:
        place, cells, models = f"{folder}/{line}", dict[str, Any](), dict[str, str]()
        traces = [_object(place, {"trace": trace}, "trace") for trace in _list(place, row, "traces")]
        for trace in traces:
            agent = _object(place, trace, "agent")
            name = _label(place, agent, "name")
            models[name] = _label(place, _object(place, agent, "config"), "model")
            rewards = {
                key: None if given is None else _object(place, {key: given}, key)
                for key, given in _object(place, trace, "rewards").items()
            }
            values = _object(place, trace, "metrics") | {
                key: given and _number(place, given, "score") for key, given in rewards.items()
            }
            paid = [_number(place, each, "score") * _number(place, each, "weight") for each in rewards.values() if each]
            values["reward"] = sum(paid) if paid and len(paid) == len(rewards) else None
            prefix = f"{name}/" if len(traces) > 1 else ""
            for key, value in values.items():
                # What ended with an error was not measured: it is lost.
                cells[f"{prefix}{key}"] = value if _cell(place, row, "ok") is True else None
        metrics |= dict.fromkeys(cells)
        task, env = _object(place, row, "task"), _object(place, row, "env")
        cells["problem"] = f"{_label(place, env, 'id')}/{_label(place, task, 'key')[:12]}"
        cells["system"] = " + ".join(dict.fromkeys(models.values()))
        found.append((place, cells))
    known = {"problem": "problem", "system": "system"} | ({"value": "reward"} if "reward" in metrics else {})
    filled = [(place, dict.fromkeys(metrics) | cells) for place, cells in found]
    return _Rows(f"{folder}/{path.name}", filled, known, sorted(metrics))


def _object(place: str, row: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = _cell(place, row, name)
    if not isinstance(value, dict):
        raise OutcomesError(f"{place}: {name!r} is not an object")
    return value


def _number(place: str, row: Mapping[str, Any], name: str) -> float:
    value = _cell(place, row, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise OutcomesError(f"{place}: {name!r} is {value!r}, which is not a number")
    return float(value)


def _trl(path: Path, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> _Rows:
    """Completions of TRL's trainers (``log_completions``): a problem is a prompt, every reward function a metric."""
    own = {"step", "prompt", "completion", "advantage"}
    metrics = [name for name, value in rows[0][1].items() if name not in own and isinstance(value, float | None)]
    found = [(place, {**row, "problem": storage.digest(row["prompt"])[:12]}) for place, row in rows]
    notes = [
        f"{path.name}: these completions were sampled during training, by weights that change from step to step; "
        "they do not show how a finished system does on problems that it was not trained on"
    ]
    return _Rows(path.name, found, {"problem": "problem"}, metrics, notes)


def _inspect_log(path: Path) -> Mapping[str, Any]:
    """Return an ``.eval`` file as its JSON, read by Inspect itself: the format is its own."""
    try:
        log = importlib.import_module("inspect_ai.log")
    except ImportError:
        raise OutcomesError(
            f"{path.name}: reading .eval files needs Inspect; pip install inspect-ai, or convert the log to JSON with "
            "`inspect log convert --to json`"
        ) from None
    _bytes(path)
    try:
        return dict(log.read_eval_log(str(path)).model_dump(mode="json"))
    except Exception as error:  # whatever its parsers raise, the file is what is wrong
        raise OutcomesError(f"{path.name}: Inspect cannot read this log ({type(error).__name__}: {error})") from None


def _inspect(path: Path, log: Mapping[str, Any]) -> _Rows:
    """A log of Inspect: a sample is a problem, an epoch one of its samples, every scorer a metric."""
    about = log["eval"]
    if not isinstance(about, Mapping) or not isinstance(log["samples"], list) or not log["samples"]:
        raise OutcomesError(f"{path.name}: the log has no samples")
    found: list[tuple[str, Mapping[str, Any]]] = []
    metrics: dict[str, None] = {}
    for number, sample in enumerate(log["samples"], start=1):
        place = f"{path.name}, sample {number}"
        if not isinstance(sample, Mapping):
            raise OutcomesError(f"{place}: not an object")
        cells: dict[str, Any] = dict(sample.get("metadata") or {})
        for scorer, score in (sample.get("scores") or {}).items():
            value = score.get("value") if isinstance(score, Mapping) else score
            parts = value.items() if isinstance(value, Mapping) else [("", value)]
            for part, grade in parts:
                name = f"{scorer}.{part}" if part else str(scorer)
                cells[name] = _GRADES.get(grade, grade) if isinstance(grade, str) else grade
                metrics[name] = None
        cells |= {
            "problem": f"{about.get('task', '')}/{_cell(place, sample, 'id')}",
            "sample": _cell(place, sample, "epoch"),
            "system": str(about.get("model", "")),
        }
        found.append((place, cells))
    # A sample that ended with an error has no score: it is lost.
    found = [(place, {**dict.fromkeys(metrics), **cells}) for place, cells in found]
    notes = [] if log["status"] == "success" else [f"{path.name}: Inspect's log has the status {log['status']!r}"]
    known = {name: name for name in ("problem", "system", "sample")}
    return _Rows(path.name, found, known, list(metrics), notes)


def _cell(place: str, row: Mapping[str, Any], name: str) -> Any:
    if name not in row:
        raise OutcomesError(f"{place}: {name!r} is missing")
    return row[name]


def _list(place: str, row: Mapping[str, Any], name: str) -> Sequence[Any]:
    value = _cell(place, row, name)
    if not isinstance(value, list):
        raise OutcomesError(f"{place}: {name!r} is not a list")
    return value


# From cells to outcomes


def _outcomes(rows: _Rows, columns: Columns, name: str) -> tuple[list[Outcome], str]:
    """Return the outcomes of a file, and the name of its metric; ``name`` is the system if the user named it, else
    empty.
    """
    if not rows.rows:
        raise OutcomesError(f"{rows.file}: there are no rows of outcomes")
    flat = [(place, _flat(place, row)) for place, row in rows.rows]
    heads = dict.fromkeys(head for _, cells in flat for head in cells)
    at = {part.name: _column(part.name, columns, rows, list(heads), name) for part in fields(Columns)}
    found = []
    for place, cells in flat:
        found.append(
            Outcome(
                problem=_label(place, cells, at["problem"]),
                system=name or _label(place, cells, at["system"]),
                value=_value(place, cells, str(at["value"])),
                sample=_whole(place, cells, at["sample"]),
                seed=_whole(place, cells, at["seed"]),
                family=_id(place, cells, at["family"]),
                place=place,
            )
        )
    return found, str(at["value"])


def _column(part: str, columns: Columns, rows: _Rows, heads: Sequence[str], name: str) -> str | None:
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


def _flat(place: str, row: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return nested objects as one, with names such as ``doc.subject``."""
    found: dict[str, Any] = {}
    for key, value in row.items():
        name = f"{before}{key}"
        part = _flat(place, value, f"{name}.") if isinstance(value, Mapping) else {name: value}
        if twice := sorted(found.keys() & part.keys()):
            raise OutcomesError(f"{place}: {twice[0]!r} stands here twice, as a name and inside of an object")
        found |= part
    return found


def _shown(value: Any) -> str:
    """Return an id as text: the same in a table that turned whole numbers into fractions."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip().encode(errors="backslashreplace").decode()  # JSON can escape half of a character


def _single(place: str, cells: Mapping[str, Any], column: str) -> Any:
    """Return what stands in a column; None if nothing does."""
    if column not in cells and any(name.startswith(f"{column}.") for name in cells):
        raise OutcomesError(f"{place}, column {column!r}: an object stands here, not a single value")
    return cells.get(column)


def _id(place: str, cells: Mapping[str, Any], column: str | None) -> str:
    """Return an id as text; empty if there is none."""
    value = None if column is None else _single(place, cells, column)
    if not isinstance(value, (str, bytes)) and isinstance(value, Collection):
        raise OutcomesError(f"{place}, column {column!r}: {_quoted(value)} is neither a text nor a number")
    return _shown(value)


def _label(place: str, cells: Mapping[str, Any], column: str | None) -> str:
    text = _id(place, cells, column)
    if not text:
        raise OutcomesError(f"{place}, column {column!r}: the cell is empty")
    return text


def _value(place: str, cells: Mapping[str, Any], column: str) -> float | None:
    value = _single(place, cells, column)
    if isinstance(value, str):
        text = value.strip().lower()
        value = None if text in _MISSING else _WORDS.get(text, text)
    if value is None:
        return None
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    except (TypeError, ValueError):
        raise OutcomesError(f"{place}, column {column!r}: {_quoted(value)} is not a number") from None
    if math.isinf(number):
        raise OutcomesError(f"{place}, column {column!r}: the value is infinite")
    if abs(number) > GREATEST:
        raise OutcomesError(f"{place}, column {column!r}: {number:g} is too large to compute with; use another unit")
    return None if math.isnan(number) else number


def _whole(place: str, cells: Mapping[str, Any], column: str | None) -> int | None:
    if column is None or not (text := _shown(_single(place, cells, column))):
        return None
    if text.removesuffix(".0").isascii() and text.removesuffix(".0").isdigit() and len(text) < 19:
        return int(text.removesuffix(".0"))
    raise OutcomesError(f"{place}, column {column!r}: {_quoted(text)} is not a whole number, 0 or more")


def _quoted(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
