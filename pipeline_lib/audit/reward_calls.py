"""Reward functions that something else trains on, their problems, and the metric: how they are read and called.

Two signatures: that of TRL's trainers (all completions at once, columns as lists) and that of verifiers' rubrics (one
completion, also awaited).
"""

from __future__ import annotations

import asyncio
import copy
import functools
import importlib
import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_lib.evaluation.outcomes import OutcomesError
from pipeline_lib.evaluation.table_files import read_table

#: Columns of problems that are taken for the prompt, if none is named.
_PROMPTS = ("prompt", "question", "problem", "input")

#: A word, a number or a mark.
TOKEN = re.compile(r"\w+|[^\w\s]")

#: What TRL's trainers give to functions that ask for it, besides columns.
_TRAINERS: Mapping[str, Any] = {"log_extra": lambda *_: None, "log_metric": lambda *_: None}


class RewardFunctionError(ValueError):
    """What was given is not a reward function, its problems, or a metric; the message says what is."""


@dataclass(frozen=True, slots=True)
class Row:
    """A problem."""

    id: str  #: where it stands, for example ``problems.jsonl, line 3``
    prompt: Any  #: a text, or a list of messages with ``role`` and ``content``
    columns: Mapping[str, Any]  #: all other values by name; the function gets them

    @property
    def text(self) -> str:
        """The prompt as a text: the contents of its messages."""
        if isinstance(self.prompt, str):
            return self.prompt
        return "\n".join(str(message.get("content", "")) for message in self.prompt)

    def spoken(self, text: str) -> Any:
        """Return a completion of the prompt: a text, or a list with one message."""
        return text if isinstance(self.prompt, str) else [{"role": "assistant", "content": text}]


def read_rows(source: str | Path | Iterable[Any], prompt: str | None = None) -> list[Row]:
    """Return the problems of a table (.csv, .tsv, .jsonl, .parquet), or of mappings in memory.

    Args:
        source: the file, or rows by column; problems that were read are returned.
        prompt: the column of the prompt; by default ``prompt``, ``question``, ``problem`` or ``input``.

    Raises:
        RewardFunctionError: it cannot be read, has no rows, or a row has no prompt.
    """
    if isinstance(source, str | Path):
        try:
            found = read_table(Path(source))
        except (OutcomesError, OSError) as error:
            raise RewardFunctionError(str(error)) from None
    else:
        try:
            given = list(_records(source))
        except TypeError:
            raise RewardFunctionError(f"problems is {source!r}; it must be a file, or rows by column") from None
        if given and all(isinstance(row, Row) for row in given):
            return given
        found = [(f"row {number}", row) for number, row in enumerate(given, 1)]
    if not found:
        raise RewardFunctionError(f"{source if isinstance(source, str | Path) else 'problems'}: there are no rows")
    rows = []
    for place, cells in found:
        if not isinstance(cells, Mapping):
            raise RewardFunctionError(f"{place}: {cells!r} is no row with a value for every column")
        name = prompt or next((name for name in _PROMPTS if name in cells), "")
        if name not in cells:
            raise RewardFunctionError(
                f"{place}: there is no column {prompt or 'prompt'!r}; name the column of the prompt, one of: "
                f"{', '.join(map(str, cells))}"
            )
        value = cells[name].tolist() if isinstance(cells[name], np.ndarray) else cells[name]
        messages = isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value)
        if not messages and not isinstance(value, str):
            raise RewardFunctionError(f"{place}: {name} is {value!r}; it must be a text or a list of messages")
        rows.append(Row(place, value, {str(key): cell for key, cell in cells.items() if key != name}))
    return rows


def _records(source: Any) -> Iterable[Any]:
    """Return the rows of a data frame of pandas or Polars, or of a table of Arrow; anything else as it is."""
    for how, options in (("to_dicts", ()), ("to_pylist", ()), ("to_dict", ("records",))):
        if hasattr(source, "columns") and hasattr(source, how):
            return getattr(source, how)(*options)
    return source


@dataclass(frozen=True, slots=True)
class Scorer:
    """A function that scores completions."""

    name: str  #: what it is called
    function: Callable[..., Any]  #: a callable; `score` knows both signatures
    weight: float = 1.0  #: its share in a sum
    #: Further arguments, which a rubric gives to its functions (``parser``).
    objects: Mapping[str, Any] = field(default_factory=dict)

    @property
    def single(self) -> bool:
        """Whether it gets one completion at a time, as in a rubric, where a failure counts as 0."""
        return "completion" in self._parameters()[0]

    def score(self, rows: Sequence[Row], texts: Sequence[str]) -> tuple[list[float | None], dict[int, str]]:
        """Return a score per text, None if the function abstains or fails, and what it raised, by position.

        Raises:
            RewardFunctionError: it needs an argument that there is not, or returns no numbers.
        """
        try:
            return self._call(rows, texts), {}
        except RewardFunctionError:
            raise
        except (Exception, SystemExit):  # whatever a user's function raises: find out for which of the texts
            found: list[float | None] = []
            raised: dict[int, str] = {}
            for place, (row, text) in enumerate(zip(rows, texts, strict=True)):
                try:
                    found += self._call([row], [text])
                except RewardFunctionError:
                    raise
                except (Exception, SystemExit) as error:
                    found.append(None)
                    raised[place] = f"{type(error).__name__}: {error}"
            return found, raised

    def _call(self, rows: Sequence[Row], texts: Sequence[str]) -> list[float | None]:
        accepted, anything = self._parameters()
        completions = [row.spoken(text) for row, text in zip(rows, texts, strict=True)]
        if "completion" in accepted:
            calls = [
                self.function(**self._chosen(accepted, anything, _single(row, completion), row))
                for row, completion in zip(rows, completions, strict=True)
            ]
            return self._numbers(_finished(_gathered(calls)) if any(map(inspect.isawaitable, calls)) else calls, rows)
        names = dict.fromkeys(name for row in rows for name in row.columns)
        given = {name: [_own(row.columns.get(name)) for row in rows] for name in names}
        given |= {"prompts": [_own(row.prompt) for row in rows], "completions": completions}
        if anything or "completion_ids" in accepted:  # without a tokenizer: a number for every word or mark
            given["completion_ids"] = [[len(token) for token in TOKEN.findall(text)] for text in texts]
        given |= {name: value for name, value in _TRAINERS.items() if name in accepted}
        values = self.function(**self._chosen(accepted, anything, given, rows[0]))
        return self._numbers(_finished(values) if inspect.isawaitable(values) else values, rows)

    def _parameters(self) -> tuple[dict[str, bool], bool]:
        """Return the names of the parameters, with whether each has to be given, and whether it takes any others."""
        try:
            found = inspect.signature(self.function).parameters.values()
        except (TypeError, ValueError):
            raise RewardFunctionError(
                f"{self.name} does not say which arguments it takes; wrap it in a function"
            ) from None
        for p in found:
            if p.kind is p.POSITIONAL_ONLY:
                raise RewardFunctionError(f"{self.name} takes {p.name!r} by position only; trainers give it by name")
        named = {p.name: p.default is p.empty for p in found if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
        return named, any(p.kind is p.VAR_KEYWORD for p in found)

    def _chosen(
        self, accepted: Mapping[str, bool], anything: bool, given: Mapping[str, Any], row: Row
    ) -> dict[str, Any]:
        given = {**given, **self.objects}
        if missing := [name for name, needed in accepted.items() if needed and name not in given]:
            raise RewardFunctionError(
                f"{self.name} needs {missing[0]!r}, which is no column of the problems ({', '.join(row.columns)})"
            )
        return {name: value for name, value in given.items() if anything or name in accepted}

    def _numbers(self, values: Any, rows: Sequence[Row]) -> list[float | None]:
        try:
            found = [
                None if value is None else _number(value)
                for value in ([] if isinstance(values, str | Mapping) else values)
            ]
        except (TypeError, ValueError, OverflowError):
            found = []
        if len(found) != len(rows):
            if self.single:
                shown, wanted = values[0], "a completion; it must return a number or None"
            else:
                shown = values
                wanted = f"{len(rows)} completions; it must return a list with a number or None for each"
            raise RewardFunctionError(f"{self.name} returned {str(shown)[:80]!r} for {wanted}")
        return found


def _number(value: Any) -> float:
    if isinstance(value, str | bytes):
        raise TypeError("a text is no number, also if it looks like one: trainers do not take it")
    return float(value)


def _own(value: Any) -> Any:
    """Return a copy of a cell, since functions may change what they get."""
    return value if isinstance(value, str | int | float | None) else copy.deepcopy(value)


def _single(row: Row, completion: Any) -> dict[str, Any]:
    """Return the arguments of a rubric's function for one completion."""
    columns = {name: _own(value) for name, value in row.columns.items()}
    defaults: dict[str, Any] = {"answer": "", "info": {}, "task": "default"}
    given = {**defaults, **columns, "prompt": _own(row.prompt), "completion": completion}
    return {**given, "state": dict(given)}


async def _gathered(calls: Sequence[Any]) -> list[Any]:
    async def one(call: Any) -> Any:
        return await call if inspect.isawaitable(call) else call

    return list(await asyncio.gather(*map(one, calls)))


def _finished(call: Any) -> Any:
    """Return what an awaitable gives: in a notebook, whose loop is already running, from another thread."""

    async def waited() -> Any:
        return await call

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(waited())
    with ThreadPoolExecutor(1) as other:
        return other.submit(asyncio.run, waited()).result()


def scorers(given: Any, weights: Sequence[float] | None = None) -> list[Scorer]:
    """Return the functions of a reward: one function, several, or a rubric with ``funcs`` and ``weights``.

    Args:
        given: a callable, the name of one (``module:function``), a rubric, or a sequence of such.
        weights: one per function; by default the rubric's, or 1.

    Raises:
        RewardFunctionError: a name is not found, something is no function, or the number of weights differs.
    """
    found: list[Scorer] = []
    several = isinstance(given, Iterable) and not isinstance(given, str) and not callable(given)
    for one in list(given) if several else [given]:
        named = load(one) if isinstance(one, str) else one
        for rubric in getattr(named, "rubrics", None) or [named]:
            functions = list(_either(rubric, "funcs", "reward_funcs") or [rubric])
            own = list(_either(rubric, "weights", "reward_weights") or [1.0] * len(functions))
            if len(own) != len(functions):
                raise RewardFunctionError(f"the rubric has {len(own)} weights for {len(functions)} functions")
            objects = dict(getattr(rubric, "class_objects", None) or {})
            for function, weight in zip(functions, own, strict=True):
                if not callable(function):
                    raise RewardFunctionError(f"{function!r} is no function")
                found.append(Scorer(_name(function), function, float(weight), objects))
    if not found:
        raise RewardFunctionError("there is no reward function")
    if weights is not None and len(weights) != len(found):
        raise RewardFunctionError(f"{len(weights)} weights were given for {len(found)} functions")
    names = Counter(scorer.name for scorer in found)
    chosen = [scorer.weight for scorer in found] if weights is None else [float(weight) for weight in weights]
    if not np.isfinite(chosen).all():
        raise RewardFunctionError(f"the weights are {chosen}; they must be finite numbers")
    return [
        replace(
            scorer,
            name=scorer.name if names[scorer.name] == 1 else f"{scorer.name} {number}",
            weight=chosen[number - 1],
        )
        for number, scorer in enumerate(found, 1)
    ]


def _either(rubric: Any, name: str, former: str) -> Any:
    """Return an attribute of a rubric, which verifiers before 0.1.8 called otherwise."""
    return getattr(rubric, name, None) or getattr(rubric, former, None)


def load(name: str) -> Any:
    """Return what ``module:name`` means; the module is imported.

    Raises:
        RewardFunctionError: there is no such module, or it has no such name.
    """
    module, colon, wanted = name.partition(":")
    if not colon or not module or not wanted:
        raise RewardFunctionError(f"{name!r} is no name of a function; write module:function")
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise RewardFunctionError(f"{name}: there is no module {error.name}; start where it can be imported") from None
    except (Exception, SystemExit) as error:  # whatever a user's module raises
        raise RewardFunctionError(f"{name}: {module} cannot be imported ({type(error).__name__}: {error})") from None
    for part in wanted.split("."):
        if not hasattr(found, part):
            raise RewardFunctionError(f"{name}: {module} has no {wanted}")
        found = getattr(found, part)
    return found


def _name(function: Any) -> str:
    return str(getattr(inner(function), "__name__", type(function).__name__))


def inner(function: Any) -> Any:
    """Return the function in a partial one."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def metric_of(given: Any) -> Scorer:
    """Return the metric that says whether a completion does the task, in [0, 1].

    Args:
        given: a function or ``module:function``, in a reward's signature; or ``equals:COLUMN`` (the completion is the
            column's text), ``contains:COLUMN`` (the text occurs in it) or ``last:COLUMN`` (its last number is the
            column's last number).

    Raises:
        RewardFunctionError: it is something else.
    """
    if isinstance(given, str):
        how, _, column = given.partition(":")
        if how in _METRICS and column:
            return _Comparison(given, _METRICS[how], column=column)
    found = load(given) if isinstance(given, str) else given
    if not callable(found):
        raise RewardFunctionError(f"metric {given!r} is no function; name one, or equals:, contains: or last:COLUMN")
    return Scorer(_name(found), found)


@dataclass(frozen=True, slots=True)
class _Comparison(Scorer):
    """A metric that compares a text with a column; ``function`` gets both."""

    column: str = ""

    def score(self, rows: Sequence[Row], texts: Sequence[str]) -> tuple[list[float | None], dict[int, str]]:
        """Return 1 for every text that the comparison holds for, else 0.

        Raises:
            RewardFunctionError: there is no such column.
        """
        for row in rows:
            value = row.columns.get(self.column)
            if value is None or value != value:
                raise RewardFunctionError(
                    f"{row.id}: there is nothing in column {self.column!r}, which metric {self.name} needs"
                    if self.column in row.columns
                    else f"{row.id}: there is no column {self.column!r}, which metric {self.name} needs"
                )
            if self.function is _METRICS["last"] and _last_number(plain(value)) is None:
                raise RewardFunctionError(f"{row.id}: {self.column} is {value!r}, without a number for {self.name}")
        wanted = [plain(row.columns[self.column]) for row in rows]
        return [float(self.function(text, right)) for text, right in zip(texts, wanted, strict=True)], {}


def _last_number(text: str) -> float | None:
    found = re.findall(r"-?\d+(?:\.\d+)?", text.replace(",", ""))
    return float(found[-1]) if found else None


_METRICS: Mapping[str, Callable[[str, str], bool]] = {
    "equals": lambda text, wanted: text.strip() == wanted.strip(),
    "contains": lambda text, wanted: wanted.strip() in text,
    "last": lambda text, wanted: (number := _last_number(wanted)) is not None and _last_number(text) == number,
}


def plain(value: Any) -> str:
    """Return a cell as the text that is played, shown and compared: lists and mappings as JSON."""
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)
