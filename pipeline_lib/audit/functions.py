"""The audit of a reward that is a function (`pipeline_lib.audit.reward_calls` calls it).

Nothing is known of the task but problems, a metric that says whether a text does it, and perhaps texts that do.  So the
texts that are played are made from these: nothing, the prompt again, another problem's solution, every column, the
form of a solution without its content, ...; the metric says which of them do the task.  Edits of the best and the worst
ones are then searched (`pipeline_lib.audit.examiner`), and a pretrained model may be sampled.
"""

from __future__ import annotations

import ast
import inspect
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pipeline_lib import storage
from pipeline_lib.audit.edits import returning
from pipeline_lib.audit.examiner import Progress, ScriptedExaminer, ScriptedPlay, Teams
from pipeline_lib.audit.result import UNDONE, AuditResult, Check, Rung, Status, conclude, form
from pipeline_lib.audit.reward_calls import TOKEN, RewardFunctionError, Row, Scorer, inner, plain
from pipeline_lib.audit.reward_words import words_of
from pipeline_lib.audit.run import Played, preflight
from pipeline_lib.environment_api.environment import Environment, Outcome

#: The name of the metric among an episode's metrics.
TASK = "task"

#: Most problems on which texts are played.
MOST_ROWS = 64

#: The number of characters, among an episode's metrics, and how many times a solution's a text may have to be one that
#: a model would write: a penalty for absurd lengths would make every other text look well paid.
_SIZE, _ABSURD = "characters", 4


#: What is well formed and says nothing, in formats that rewards ask for.
_FORMS = (
    "{}",
    "[]",
    '{"answer": ""}',
    "<answer></answer>",
    "```python\n```",
    "- \n- \n- ",
    "| a | b |\n|---|---|\n",
    "1. \n2. ",
)


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
        return tuple(inner(scorer.function) for scorer in self.rewards)

    @property
    def reward_bounds(self) -> tuple[float, float]:  # type: ignore[override]
        """The declared bounds, or those that were seen so far."""
        return self.bounds or self._seen

    def agents(self, problem: Row) -> tuple[str, ...]:
        return ("model",)

    def start(self, problem: Row, seed: int = 0) -> Row:
        return problem

    def observe(self, state: Row, agent: int) -> str:
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
    at_once = None  # functions may compare the texts that they are given together

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
                found[row.id] = plain(row.columns[solution])
                continue
            if "{" not in solution:
                raise RewardFunctionError(
                    f"{row.id}: there is no column {solution!r}; the columns are {', '.join(row.columns)}"
                )
            try:
                found[row.id] = solution.format_map({name: plain(value) for name, value in row.columns.items()})
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
            **{f"{form!r} and nothing else": lambda row, form=form: form for form in _FORMS},  # type: ignore[misc]
        }
        for name in dict.fromkeys(name for row in rows for name in row.columns):
            shown = {row.id: plain(row.columns.get(name, "")) for row in rows}
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
                        f"{frame[0]}{plain(row.columns.get(name, ''))}{frame[1]}"
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
            shared = set.intersection(*(set(TOKEN.findall(_even(text))) for text in solutions))
            holds = all(
                " ".join(reversed(solution.split())) in text
                and bool({*TOKEN.findall(_even(solution))} - shared - {*TOKEN.findall(_even(row.text))})
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
        if not counts or len({row.text for row in self._rows}) < 2:  # one problem says nothing of others
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
    words = iter(TOKEN.findall(_even(text)))
    return not _constant(solution, "0") and all(word in words for word in TOKEN.findall(_even(solution)))


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
    for text in (row.text, *map(plain, row.columns.values())):
        for found in re.findall(r"==\s*([^\n=]+)", text):
            for end in (len(found), *(at for at, mark in enumerate(found) if mark in ' ,;"')):
                try:
                    return repr(ast.literal_eval(found[:end].strip()))
                except (ValueError, SyntaxError, MemoryError, RecursionError):
                    continue
    return "True"


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
            "problems": storage.digest([[row.prompt, plain(dict(row.columns))] for row in rows]),
            "base_policy": sample is not None,
        },
        seconds=time.perf_counter() - started,
    )


def _source(function: Any) -> str:
    try:
        function = inner(function)
        return inspect.getsource(function if inspect.isroutine(function) else type(function))
    except (OSError, TypeError):
        return repr(type(function))
