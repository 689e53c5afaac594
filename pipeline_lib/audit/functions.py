"""The audit of a reward that is a function: in the signature of TRL's trainers, or of a rubric of verifiers.

Nothing is known of the task but problems, a metric that says whether a text does it, and perhaps texts that do.  So the
texts that are played are made from these: nothing, the prompt again, another problem's solution, every column, the
form of a solution without its content, ...; the metric says which of them do the task.  Edits of the best and the worst
ones are then searched (`pipeline_lib.audit.search`), and a pretrained model may be sampled.
"""

from __future__ import annotations

import ast
import asyncio
import copy
import functools
import importlib
import inspect
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_lib import storage
from pipeline_lib.audit.edits import returning, words_of
from pipeline_lib.audit.examiner import Progress, ScriptedExaminer, ScriptedPlay, Teams
from pipeline_lib.audit.ladder import UNDONE, form
from pipeline_lib.audit.preflight import Played, preflight
from pipeline_lib.audit.result import AuditResult, Check, Rung, Status, conclude
from pipeline_lib.environment_api.environment import Environment, Outcome
from pipeline_lib.evaluation.outcome_files import OutcomesError, read_table

#: The name of the metric among an episode's metrics.
TASK = "task"

#: Most problems on which texts are played.
MOST_ROWS = 64

#: The number of characters, among an episode's metrics, and how many times a solution's a text may have to be one that
#: a model would write: a penalty for absurd lengths would make every other text look well paid.
_SIZE, _ABSURD = "characters", 4

#: Columns of problems that are taken for the prompt, if none is named.
_PROMPTS = ("prompt", "question", "problem", "input")

#: A word, a number or a mark.
_TOKEN = re.compile(r"\w+|[^\w\s]")

#: What TRL's trainers give to functions that ask for it, besides columns.
_TRAINERS: Mapping[str, Any] = {"log_extra": lambda *_: None, "log_metric": lambda *_: None}


class RewardFunctionError(ValueError):
    """What was given is not a reward function, its problems, or a metric; the message says what is."""


@dataclass(frozen=True, slots=True)
class Row:
    """A problem.

    Attributes:
        id: where it stands, for example ``problems.jsonl, line 3``.
        prompt: a text, or a list of messages with ``role`` and ``content``.
        columns: all other values by name; the function gets them.
    """

    id: str
    prompt: Any
    columns: Mapping[str, Any]

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
    """A function that scores completions.

    Attributes:
        name: what it is called.
        function: a callable; `score` knows both signatures.
        weight: its share in a sum.
        objects: further arguments, which a rubric gives to its functions (``parser``).
    """

    name: str
    function: Callable[..., Any]
    weight: float = 1.0
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
            given["completion_ids"] = [[len(token) for token in _TOKEN.findall(text)] for text in texts]
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
    return str(getattr(_inner(function), "__name__", type(function).__name__))


def _inner(function: Any) -> Any:
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
            if self.function is _METRICS["last"] and _last_number(_plain(value)) is None:
                raise RewardFunctionError(f"{row.id}: {self.column} is {value!r}, without a number for {self.name}")
        wanted = [_plain(row.columns[self.column]) for row in rows]
        return [float(self.function(text, right)) for text, right in zip(texts, wanted, strict=True)], {}


def _last_number(text: str) -> float | None:
    found = re.findall(r"-?\d+(?:\.\d+)?", text.replace(",", ""))
    return float(found[-1]) if found else None


_METRICS: Mapping[str, Callable[[str, str], bool]] = {
    "equals": lambda text, wanted: text.strip() == wanted.strip(),
    "contains": lambda text, wanted: wanted.strip() in text,
    "last": lambda text, wanted: (number := _last_number(wanted)) is not None and _last_number(text) == number,
}


class FunctionEnvironment(Environment[Row, Row]):
    """Problems that one agent answers once; functions pay for the answer.

    Args:
        rewards: the functions whose weighted sum is the reward; each is a term.
        metric: says whether an answer does the task.
        bounds: least and greatest reward; None: those that were seen so far.
    """

    turns = 1

    def __init__(self, rewards: Sequence[Scorer], metric: Scorer, bounds: tuple[float, float] | None) -> None:
        self.rewards, self.metric, self.bounds = rewards, metric, bounds
        self.raised: dict[str, str] = {}  #: what functions raised, by the text for which they did
        self.forgiven: dict[str, str] = {}  #: the same, of functions of rubrics
        self._seen = (0.0, 0.0)
        self._any = False

    @property
    def paid_by(self) -> object:
        """The functions."""
        return tuple(_inner(scorer.function) for scorer in self.rewards)

    @property
    def reward_bounds(self) -> tuple[float, float]:  # type: ignore[override]
        """The declared bounds, or those that were seen so far."""
        return self.bounds or self._seen

    def agents(self, problem: Row) -> tuple[str, ...]:
        """Return the only agent."""
        return ("model",)

    def start(self, problem: Row, seed: int = 0) -> Row:
        """Return the problem, which is the only state."""
        return problem

    def observe(self, state: Row, agent: int) -> str:
        """Return the prompt."""
        return state.text

    def step(self, states: Sequence[Row], joint_actions: Sequence[Sequence[str]]) -> list[Outcome[Row]]:
        """Ask every function once for all texts, as a trainer does."""
        texts = [action for (action,) in joint_actions]
        if not texts:
            return []
        terms: dict[str, list[float | None]] = {}
        for scorer in self.rewards:
            found, raised = scorer.score(states, texts)
            terms[scorer.name] = [None if value is None else scorer.weight * value for value in found]
            failures = self.forgiven if scorer.single else self.raised
            failures |= {texts[place]: f"{scorer.name} raised {what}" for place, what in raised.items()}
        done = self.done(states, texts)
        outcomes = []
        for place, state in enumerate(states):
            earned = {name: value for name, values in terms.items() if (value := values[place]) is not None}
            # Where all abstain, TRL's trainers sum up to 0, too.  A text for which one fails earns the least.
            reward = sum(earned.values()) if texts[place] not in self.raised else self._seen[0]
            if np.isfinite(reward):
                least, greatest = self._seen if self._any else (reward, reward)
                self._seen, self._any = (min(least, reward), max(greatest, reward)), True
            outcomes.append(Outcome(reward, earned, {TASK: done[place], _SIZE: len(texts[place])}, state, True))
        return outcomes

    def done(self, rows: Sequence[Row], texts: Sequence[str]) -> list[float]:
        """Return how much of the task each text does.

        Raises:
            RewardFunctionError: the metric fails, or its value is not in [0, 1].
        """
        found, raised = self.metric.score(rows, texts)
        if raised:
            place, what = next(iter(raised.items()))
            raise RewardFunctionError(f"metric {self.metric.name} raised {what} for the text {texts[place][:60]!r}")
        values = [0.0 if value is None else value for value in found]
        if wrong := [value for value in values if not 0 <= value <= 1]:
            raise RewardFunctionError(f"metric {self.metric.name} returned {wrong[0]:g}; it must be between 0 and 1")
        return values


class FunctionExaminer(ScriptedExaminer):
    """Plays texts that are made from the problems.

    Args:
        environment: of the functions.
        rows: all problems.
        solution: a column, or a template such as ``"<answer>{answer}</answer>"``; None: the column that does the task.

    Raises:
        RewardFunctionError: the solutions do not do the task, or a row has none.
    """

    wanted = TASK
    edited_on = MOST_ROWS

    def __init__(self, environment: FunctionEnvironment, rows: Sequence[Row], solution: str | None) -> None:
        self.words = environment.metric.name  # type: ignore[misc]
        self._environment, self._rows = environment, rows
        self._padded: list[Rung] = []
        self._solutions = self._find(solution)
        self._texts = self._made()
        done = {
            name: float(np.mean(environment.done(rows, [texts[row.id] for row in rows])))
            for name, texts in self._texts.items()
        }
        most = max(done.values())
        #: Texts that were made to leave the task undone, and do it by the metric, are neither.
        self._roles = {
            name: "working"
            if name == "the solution"
            else "degenerate"
            if share < UNDONE * most or not most
            else "other"
            for name, share in done.items()
        }
        self.solved = most > 0  #: whether any text does any of the task
        if self.solved and "degenerate" not in self._roles.values():
            raise RewardFunctionError(
                f"metric {self.words} says that every text that was tried does the task, also no text at all; take "
                "another metric"
            )

    def teams(self, environment: Any, problem: Row, other: Row) -> Teams:
        """Return the texts for a problem."""
        return {name: (self._roles[name], [texts[problem.id]]) for name, texts in self._texts.items()}

    def _find(self, solution: str | None) -> dict[str, str]:
        columns = [name for name in self._rows[0].columns if all(name in row.columns for row in self._rows)]
        if solution is not None:
            found = self._written(solution)
            share = float(np.mean(self._environment.done(self._rows, [found[row.id] for row in self._rows])))
            if share < UNDONE:
                raise RewardFunctionError(
                    f"solution {solution!r} does the task in {share:.0%} of the problems by the metric {self.words}; "
                    "name another column or template, or another metric"
                )
            return found
        best: tuple[float, dict[str, str]] = (0.0, {})
        for name in columns:
            texts = self._written(name)
            share = float(np.mean(self._environment.done(self._rows, [texts[row.id] for row in self._rows])))
            if share > best[0]:
                best = share, texts
        return best[1] if best[0] >= UNDONE else {}

    def _written(self, solution: str) -> dict[str, str]:
        """Return the solution of every row, from a column or a template."""
        found = {}
        for row in self._rows:
            if solution in row.columns:
                found[row.id] = _plain(row.columns[solution])
                continue
            if "{" not in solution:
                raise RewardFunctionError(
                    f"{row.id}: there is no column {solution!r}; the columns are {', '.join(row.columns)}"
                )
            try:
                found[row.id] = solution.format_map({name: _plain(value) for name, value in row.columns.items()})
            except (KeyError, ValueError, IndexError, AttributeError, TypeError) as error:
                raise RewardFunctionError(
                    f"{row.id}: solution {solution!r} cannot be filled in ({error}); the columns are "
                    f"{', '.join(row.columns)}"
                ) from None
        return found

    def _made(self) -> dict[str, dict[str, str]]:
        """Return the texts by name and problem."""
        rows, solutions = self._rows, self._solutions
        words = "\n".join(words_of(self._environment.paid_by).anywhere)
        made: dict[str, Callable[[Row], str]] = {
            "nothing": lambda row: "",
            "a space": lambda row: " ",
            "one word": lambda row: "Yes.",
            "a refusal": lambda row: "I am sorry, but I cannot help with that.",
            "the prompt again": lambda row: row.text,
            "one word a thousand times": lambda row: "well " * 1000,
            "a long text about nothing": lambda row: "It is what it is, and so it goes on.\n" * 200,
            "the words of the reward's source": lambda row: words or "well",
            "a program that ends at once": lambda row: "raise SystemExit(0)\n",
            "the numbers from 0 to 200": lambda row: " ".join(map(str, range(201))),
        }
        for name in dict.fromkeys(name for row in rows for name in row.columns):
            shown = {row.id: _plain(row.columns.get(name, "")) for row in rows}
            if shown != solutions and any(shown.values()):
                made[f"the column {name}"] = lambda row, shown=shown: shown[row.id]  # type: ignore[misc]
        if solutions:
            by_place = [solutions[row.id] for row in rows]
            often = Counter(by_place).most_common(1)[0][0]
            other = self._others()
            frame = _frame(by_place)
            # Few labels (A to D, languages) are known to everybody.
            counts = Counter(by_place)
            known = sorted(text for text in counts if counts[text] > 1) if 3 * len(counts) <= len(rows) else []
            made |= {
                "the solution": lambda row: solutions[row.id],
                "the most frequent solution": lambda row: often,
                "another problem's solution": lambda row: other[row.id],
                "the solution with other numbers": lambda row: re.sub(
                    r"\d{1,18}", lambda found: str(int(found[0]) + 1), solutions[row.id]
                ),
                "the solution with other signs": lambda row: re.sub(
                    r"(?<=[\d)\s])[-+*/](?=[\s\d(])", lambda found: "+-"[found[0] == "+"], solutions[row.id]
                ),
                **{
                    f"the solution's functions, which return {value}": lambda row, value=value: _constant(  # type: ignore[misc]
                        solutions[row.id], value
                    )
                    for value in ("0", "1", "None", "''", "[]", "True")
                },
                "the solution's functions, which return what an example says": lambda row: _constant(
                    solutions[row.id], _example(row)
                ),
                "the end of the solution with the numbers from 0 to 200": lambda row: _numbered(solutions[row.id]),
                "all solutions that occur often": lambda row: "\n".join(known),
                **{
                    f"the column {name} in the frame of the solutions": lambda row, name=name: (  # type: ignore[misc]
                        f"{frame[0]}{_plain(row.columns.get(name, ''))}{frame[1]}"
                    )
                    for name in dict.fromkeys(name for row in rows for name in row.columns)
                    if any(frame)
                },
                "half of the solution": lambda row: solutions[row.id][: len(solutions[row.id]) // 2],
                "several problems' solutions": lambda row: "\n".join(
                    text for text in dict.fromkeys(by_place) if text != solutions[row.id]
                )[:4000],
            }
        found: dict[str, dict[str, str]] = {}
        for name, make in made.items():
            texts = {row.id: make(row) for row in rows}
            if texts not in found.values():  # prose has no functions, ...
                found[name] = texts
        return found

    def _others(self) -> dict[str, str]:
        """Return for every problem the next solution that is not its own."""
        found = {}
        for place, row in enumerate(self._rows):
            after = [self._solutions[one.id] for one in (*self._rows[place + 1 :], *self._rows[:place])]
            found[row.id] = next((text for text in after if text != self._solutions[row.id]), "")
        return found

    def least(self, rungs: Sequence[Rung]) -> float:
        """Return the least reward of a text that is not much longer than a solution."""
        longest = _ABSURD * max(map(len, self._solutions.values()), default=0)
        counted = [rung for rung in rungs if not longest or rung.metrics[_SIZE] <= max(longest, 100)]
        return super().least(counted)

    def judged(self, rung: Rung, actions: Sequence[Sequence[str]], problems: Sequence[Row]) -> Rung:
        """Count a text that holds the solution as one: only who has solved the problem can write it.

        It may have other letters (capitals) or additions, or be the same words in another order, if they are not those
        of the prompt.  The metric may see that otherwise (it reads the last number, say), which is worth a warning.
        """
        solutions = [self._solutions.get(row.id, "") for row in problems]
        if rung.name.startswith("the solution with "):
            holds = all(_holds(text, a) for a, (text,) in zip(solutions, actions, strict=True))
        elif rung.name.startswith("the solution, spoiled"):
            shared = set.intersection(*(set(_TOKEN.findall(_even(text))) for text in solutions))
            holds = all(
                " ".join(reversed(solution.split())) in text
                and bool({*_TOKEN.findall(_even(solution))} - shared - {*_TOKEN.findall(_even(row.text))})
                for row, solution, (text,) in zip(problems, solutions, actions, strict=True)
            )
        else:
            holds = False
        if not holds:
            return rung
        done = float(np.mean(self._environment.done(problems, solutions)))
        if rung.outcome < UNDONE * done:
            self._padded.append(rung)
        return replace(rung, outcome=max(rung.outcome, done))

    def further(self, rungs: Sequence[Rung], played: ScriptedPlay) -> list[Check]:
        """Return for which texts a function fails, as training would, and where it and the metric disagree."""
        return [*self._padding(rungs), *self._skewed(), *self._failures()]

    def _skewed(self) -> list[Check]:
        counts = Counter(map(_even, self._solutions.values()))
        if len(counts) < 2:
            return []
        (text, count), *_ = counts.most_common(1)
        share = count / len(self._rows)
        sentence = f"{text[:60]!r} solves {share:.0%} of the problems, so who always says it earns as much."
        if form(share) is Status.PASS:
            return []
        return [Check("one answer", form(share), sentence, {"share": share}, "take as many problems for every answer.")]

    def _padding(self, rungs: Sequence[Rung]) -> list[Check]:
        best = max((rung.reward for rung in rungs if rung.role == "working"), default=np.inf)
        paid = [rung for rung in self._padded if rung.reward >= best]
        if not paid:
            return []
        top = max(paid, key=lambda rung: rung.reward)
        sentence = (
            f"'{top.name}' earns {top.reward:.3f}, no less than the solution alone, and has {self.words} "
            f"{top.outcome:.2f}: the reward and the metric disagree about what may stand around a solution."
        )
        numbers = {"team": top.name, "reward": top.reward, "outcome": top.outcome}
        return [Check("padding", Status.WARN, sentence, numbers, "let one of them read the text as the other does.")]

    def _failures(self) -> list[Check]:
        raised, forgiven = self._environment.raised, self._environment.forgiven
        if not raised and not forgiven:
            return []
        text, what = next(iter((raised or forgiven).items()))
        sentence = (
            f"The reward fails for {len(raised or forgiven)} of the texts that were tried; for {text[:60]!r} {what}."
        )
        if not raised:
            sentence += " A rubric counts that as 0."
        return [
            Check(
                "raises",
                Status.FAIL if raised else Status.WARN,
                sentence,
                {"texts": len(raised or forgiven)},
                "return a number, or None, for every text.",
            )
        ]


def _even(text: str) -> str:
    """Return a text in small letters with single spaces."""
    return " ".join(text.casefold().split())


def _holds(text: str, solution: str) -> bool:
    """Return whether a text has the words of a solution in their order; of a program, whether it is all there."""
    if _even(solution) in _even(text):
        return True
    words = iter(_TOKEN.findall(_even(text)))
    return not _constant(solution, "0") and all(word in words for word in _TOKEN.findall(_even(solution)))


def _constant(text: str, value: str) -> str:
    """Return a program, also one in a fence, whose functions return a value; nothing if there is none."""
    fenced = re.search(r"```\w*\n(.*?)```", text, re.DOTALL)
    if fenced is None:
        return returning(text, value)
    program = returning(fenced[1], value)
    return program and f"{text[: fenced.start(1)]}{program}{text[fenced.end(1) :]}"


def _frame(texts: Sequence[str]) -> tuple[str, str]:
    """Return what all texts begin and end with, without parts of words."""
    if len(set(texts)) == 1:
        return "", ""
    before = _common(texts)
    after = _common([text[len(before) :][::-1] for text in texts])[::-1]
    return re.sub(r"\w+$", "", before), re.sub(r"^\w+", "", after)


def _common(texts: Sequence[str]) -> str:
    """Return what all texts begin with."""
    least, greatest = min(texts), max(texts)
    return least[: next((at for at, mark in enumerate(least) if mark != greatest[at]), len(least))]


def _numbered(text: str) -> str:
    """Return the end of a text once for every number from 0 to 200, in place of its last number; else nothing."""
    found = list(re.finditer(r"-?\d+(?:\.\d+)?", text))
    if not found:
        return ""
    start, end = found[-1].span()
    return "".join(f"{text[max(0, start - 20) : start]}{number}{text[end : end + 20]}\n" for number in range(201))


def _example(row: Row) -> str:
    """Return the first value that an example in the problem compares something with (``== 3``); else ``True``."""
    for text in (row.text, *map(_plain, row.columns.values())):
        for found in re.findall(r"==\s*([^\n=]+)", text):
            for end in (len(found), *(at for at, mark in enumerate(found) if mark in ' ,;"')):
                try:
                    return repr(ast.literal_eval(found[:end].strip()))
                except (ValueError, SyntaxError, MemoryError, RecursionError):
                    continue
    return "True"


def _plain(value: Any) -> str:
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


#: Plays a model: from the rows, G texts for each.
Sampler = Callable[[Sequence[Row]], Sequence[Sequence[str]]]


def audit_functions(
    rewards: Sequence[Scorer],
    metric: Scorer,
    rows: Sequence[Row],
    solution: str | None = None,
    bounds: tuple[float, float] | None = None,
    sample: Sampler | None = None,
    progress: Progress | None = None,
) -> AuditResult:
    """Audit a reward that is a weighted sum of functions.

    Args:
        rewards: the functions.
        metric: how much of the task a text does, in [0, 1].
        rows: the problems, at most `MOST_ROWS`; a dozen or two are enough, since every text is played on each.
        solution: column or template of texts that do the task; None: the column that does it by the metric.
        bounds: least and greatest reward, if they are known: what nobody earns of them counts as earned without the
            task.
        sample: samples a model, whose texts are then judged as the base policy of a training.
        progress: called as ``progress(done, total, text)``.

    Raises:
        RewardFunctionError: functions, problems, metric or solutions do not fit together.
    """
    started = time.perf_counter()
    report = progress or (lambda done, total, text: None)
    environment = FunctionEnvironment(rewards, metric, bounds)
    examiner = FunctionExaminer(environment, rows, solution)
    if not examiner.solved and sample is None:
        raise RewardFunctionError(
            f"no text that was tried does the task by the metric {examiner.words}: name a column or a template of "
            "solutions, a model, or another metric"
        )
    rungs, checks = examiner.examine(environment, rows, 0, report)
    if sample is not None:
        texts = sample(rows)
        flat = [(row, text) for row, group in zip(rows, texts, strict=True) for text in group]
        outcomes = environment.step([row for row, _ in flat], [[text] for _, text in flat])
        shape = (len(rows), -1)
        earned = np.array([np.nan if one.reward is None else one.reward for one in outcomes]).reshape(shape)
        done = np.array([one.metrics[TASK] for one in outcomes]).reshape(shape)
        checks += preflight(Played(earned, {TASK: done}), TASK, examiner.words, ())
        report(1, 1, "the model")
    name = " + ".join(s.name if s.weight == 1 else f"{s.weight:g} {s.name}" for s in rewards)
    status, summary = conclude(checks, f"'{name}'")
    return AuditResult(
        status=status,
        environment="reward function",
        reward=name,
        summary=summary,
        checks=tuple(checks),
        ladder=tuple(rungs),
        identity={
            "reward": storage.digest([[_source(s.function), s.weight] for s in rewards]),
            "metric": storage.digest(_source(metric.function)),
            "problems": storage.digest([[row.prompt, _plain(dict(row.columns))] for row in rows]),
            "base_policy": sample is not None,
        },
        seconds=time.perf_counter() - started,
    )


def _source(function: Any) -> str:
    try:
        function = _inner(function)
        return inspect.getsource(function if inspect.isroutine(function) else type(function))
    except (OSError, TypeError):
        return repr(type(function))
