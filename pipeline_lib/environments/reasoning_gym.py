"""Any dataset of reasoning-gym: a team in which every agent is told a part of the question, or one agent alone.

The readers act first: each writes a note about its part.  The solver then reads its own part and the notes, and
answers.  The reward is 1 for an answer to which reasoning-gym's own scoring gives the full score.

Questions are made and answers are scored by the package `reasoning_gym`, which is not installed by default.  Some of
its datasets evaluate an answer as an expression; those are refused, since text of a model must not run here.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, Literal

from pydantic import Field

from pipeline_lib.audit.examiner import ScriptedExaminer, Teams
from pipeline_lib.environment_api.environment import Check, Environment, Exhibit, Outcome, Part
from pipeline_lib.environment_api.metrics import Metric, behaviour
from pipeline_lib.environment_api.task import Demonstration, Task, check_steps
from pipeline_lib.problems.content import ProblemsError, normalised_text
from pipeline_lib.settings.base import Section
from pipeline_lib.settings.environment import EnvironmentSection
from pipeline_lib.settings.problems import PROMPT, Prompt, SplitSizes
from pipeline_lib.storage import digest

INSTALL = "pip install 'symposium[reasoning-gym]'"

#: What runs an answer as code, in the source of a dataset.
_EVALUATES = re.compile(r"\b(eval|exec|parse_expr|sympify|parse_latex|subprocess)\b|\b(sp|sympy)\.(S|Poly)\b")

#: Numbers that take minutes or all memory to write out, such as 1e99999999.
_HUGE = re.compile(r"[eE][+-]?\d{4}")

#: Questions drawn for one that is new, before a dataset counts as exhausted.
_REPEATED = 20

#: A score from which an answer counts as right; scores of partly right answers are below.
_RIGHT = 0.999
#: Most words of a note that a solver can be given.
MOST_WORDS = 10_000


class ReasoningGymSettings(EnvironmentSection):
    """A question told in parts to several agents, or as a whole to one."""

    kind: Literal["reasoning_gym"] = "reasoning_gym"
    agents: int = Field(2, ge=1, le=4, description="readers of a part each and the solver; 1: one agent, told all")
    note_words: int = Field(40, ge=1, le=MOST_WORDS, description="words of a note that the solver reads")
    partial: bool = Field(
        False, description="also pay the dataset's scores below 1; many pay an answer that only mentions the right one"
    )


class ReasoningGymProblems(Section):
    """Questions of one dataset, which the package generates."""

    kind: Literal["reasoning_gym"] = "reasoning_gym"
    dataset: str = Field("chain_sum", description="name of the dataset in reasoning-gym")
    config: dict[str, int | float | str | bool | list[Any]] = Field({}, description="the dataset's own settings")
    seed: int = Field(7, ge=0, description="seed of the dataset")
    prompt: Prompt = PROMPT
    sizes: SplitSizes = SplitSizes(train=256, validation=64, test=128)


@dataclass(frozen=True, slots=True)
class Question:
    """One entry of a dataset."""

    dataset: str  #: where the package finds it
    config: str  #: of the dataset, JSON
    seed: int  #: of the dataset
    drawn: int  #: number of entries that the dataset was asked for
    index: int  #: its place among them
    question: str  #: as the package gives it
    answer: str  #: as the package gives it
    head: int  #: number of characters at the beginning that all questions have in common; every agent is told them
    plain: bool  #: the agents are prompted in plain English

    @property
    def id(self) -> str:
        return f"{self.dataset}/{self.index}"

    @property
    def family(self) -> str:
        """Return the id: entries are drawn independently."""
        return self.id

    @property
    def content_hash(self) -> str:
        return digest(normalised_text(self.question))

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, **asdict(self)}

    def parts(self, count: int) -> list[str]:
        """Return the text after the head in ``count`` pieces of equally many words; joined they are that text."""
        words = re.findall(r"\S+\s*", self.question[self.head :])
        cuts = [round(number * len(words) / count) for number in range(count + 1)]
        return ["".join(words[low:high]) for low, high in itertools.pairwise(cuts)]


# ---- The package.


def package() -> Any:
    """Return the package `reasoning_gym`; raises ProblemsError if it is not installed."""
    try:
        return importlib.import_module("reasoning_gym")
    except ImportError as error:
        raise ProblemsError(f"environment.kind: reasoning_gym needs the package reasoning-gym: {INSTALL}") from error


@functools.cache
def dataset_of(name: str, config: str, seed: int, size: int) -> Any:
    """Return a dataset of the package.

    Args:
        name: its name in the package.
        config: its own settings, as JSON.
        seed: of its questions.
        size: number of questions.

    Raises:
        ProblemsError: there is none, it evaluates answers as code, or it does not take these settings.
    """
    gym = package()
    known = importlib.import_module("reasoning_gym.factory").DATASETS
    if name not in known:
        raise ProblemsError(f"problems.dataset: reasoning-gym has no {name!r}; it has {', '.join(sorted(known))}")
    if name == "composite":  # its own code looks harmless, and it hands answers to any other dataset
        raise ProblemsError("problems.dataset: composite is not played, it joins others; name one of them")
    if word := evaluates(known[name][0]):
        raise ProblemsError(
            f"problems.dataset: {name} is not played, since its code contains {word!r}, which may run an answer as "
            "Python; take another dataset"
        )
    try:
        return gym.create_dataset(name, seed=seed, size=size, **json.loads(config))
    except Exception as error:  # its settings check themselves in many ways
        raise ProblemsError(f"problems.config: {name} does not take {config}: {error}") from error


def evaluates(kind: type) -> str:
    """Return what in the source of a dataset's class may run a text as code; empty if there is nothing.

    The modules of all its base classes in the package are read.
    """
    for base in kind.__mro__:
        if base.__module__.startswith("reasoning_gym"):
            module = importlib.import_module(base.__module__)
            if found := _EVALUATES.search(inspect.getsource(module)):
                return found[0]
    return ""


def score(question: Question, answer: str) -> float:
    """Return what the package gives an answer, in [0, 1]; an answer with which its scoring ends in an error gets 0.

    Raises:
        ProblemsError: the installed version has another question at this place.
    """
    if _HUGE.search(answer.replace("_", "")):
        return 0.0
    dataset = dataset_of(question.dataset, question.config, question.seed, question.drawn)
    entry = dataset[question.index]
    if entry["question"] != question.question:
        raise ProblemsError(
            f"problem {question.id}: the installed reasoning-gym makes another question there; prepare the problems "
            "again, or install the version they were made with"
        )
    try:
        return min(1.0, max(0.0, float(dataset.score_answer(answer, entry))))
    except Exception:  # whatever an answer leads to in code that expects another one
        return 0.0


def answer_of(text: str) -> str:
    """Return the last text between ``<answer>`` and ``</answer>``; without these, the whole text."""
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return (found[-1] if found else text).strip()


def common_head(questions: Sequence[str]) -> int:
    """Return the number of characters, up to the end of a word, with which all of several questions begin."""
    least, greatest = min(questions), max(questions)
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(least, greatest, strict=False)))
    return 0 if least == greatest else len(least[:same]) - len(re.split(r"\s", least[:same])[-1])


# ---- Play.


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, with the notes that the readers wrote; None before they did."""

    question: Question
    notes: tuple[str, ...] | None


class ReasoningGame(Environment[Question, Asked]):
    """Readers write notes, then the solver answers; one agent answers at once."""

    reward_bounds = (0.0, 1.0)

    def __init__(self, settings: ReasoningGymSettings) -> None:
        self.settings = settings
        self.turns = 2 if settings.agents > 1 else 1
        self._agents = agent_names(settings)

    def agents(self, problem: Question) -> tuple[str, ...]:
        return self._agents

    def start(self, problem: Question, seed: int = 0) -> Asked:
        return Asked(problem, None if self.turns > 1 else ())

    def acting(self, state: Asked) -> Sequence[int]:
        last = len(self._agents) - 1
        return range(last) if state.notes is None else (last,)

    def observe(self, state: Asked, agent: int) -> str:
        return "".join(part.text for part in self.parts(state, agent))

    def parts(self, state: Asked, agent: int) -> Sequence[Part]:
        question = state.question
        told = question.parts(len(self._agents))[agent]
        if agent < len(self._agents) - 1:
            return _reader(question, told, self.settings.note_words)
        return _solver(question, told, state.notes or (), alone=self.turns == 1)

    def step(self, states: Sequence[Asked], joint_actions: Sequence[Sequence[str]]) -> list[Outcome[Asked]]:
        return [self._outcome(state, actions) for state, actions in zip(states, joint_actions, strict=True)]

    def _outcome(self, state: Asked, actions: Sequence[str]) -> Outcome[Asked]:
        if state.notes is None:
            notes = tuple(" ".join(text.split()[: self.settings.note_words]) for text in actions[:-1])
            return Outcome(0.0, {"answer": 0.0}, _measured(0.0, notes), Asked(state.question, notes), done=False)
        answer = answer_of(actions[-1])
        measured = _measured(score(state.question, answer), state.notes)
        earned = measured["question_score" if self.settings.partial else "question_solved"]
        details = {"answer": normalised_text(answer)}
        return Outcome(earned, {"answer": earned}, measured, state, done=True, details=details)

    def divided(self, problem: Question) -> bool:
        return self.turns > 1

    def right_part(self, state: Asked, agent: int) -> str:
        last = len(self._agents) - 1
        return state.question.answer if agent == last else state.question.parts(last + 1)[agent].strip()

    def exhibit(self, state: Asked, actions: Sequence[str]) -> Exhibit:
        if state.notes is None:
            return super().exhibit(state, actions)
        answer = answer_of(actions[-1])
        passed = score(state.question, answer) >= _RIGHT
        return Exhibit(
            state.question.question, checks=(Check(f"the answer is {state.question.answer}", passed, answer),)
        )


def agent_names(settings: ReasoningGymSettings) -> tuple[str, ...]:
    """Return the names of the agents: the readers, then the solver."""
    readers = settings.agents - 1
    return (*(f"reader{number}" if readers > 1 else "reader" for number in range(1, readers + 1)), "solver")


def _measured(earned: float, notes: Sequence[str]) -> dict[str, float]:
    words = [len(note.split()) for note in notes]
    return {
        "question_solved": float(earned >= _RIGHT),
        "question_score": earned,
        "note_words": sum(words) / max(1, len(words)),
        "silent_readers": sum(not count for count in words) / max(1, len(words)),
    }


def _reader(question: Question, told: str, words: int) -> list[Part]:
    if not question.plain:
        return [Part("part", told.strip()), Part("", "\nnote:")]
    return [
        Part(
            "role",
            "Several agents answer one question together. Each of you is told a part of it, and only the last one "
            f"answers. Write a note of at most {words} words that tells them what they need from your part.\n",
        ),
        Part("question", f"The question begins: {question.question[: question.head]}\n" if question.head else ""),
        Part("part", f"Your part: {told.strip()}\n"),
    ]


def _solver(question: Question, told: str, notes: Sequence[str], alone: bool) -> list[Part]:
    if not question.plain:
        read = [Part("note", f"{note}\n") for note in notes]
        return [*read, Part("part", told.strip()), Part("", "\nanswer:")]
    wanted = Part("role", "Give only the final answer, as <answer>...</answer>.\n")
    if alone:
        return [Part("question", f"{question.question}\n"), wanted]
    return [
        Part("role", "Several agents answer one question together. You are the last one, and answer it.\n"),
        Part("question", f"The question begins: {question.question[: question.head]}\n" if question.head else ""),
        *(Part("note", f"Note about part {number}: {note}\n") for number, note in enumerate(notes, 1)),
        Part("part", f"The last part, which you were told: {told.strip()}\n"),
        wanted,
    ]


# ---- The audit, and the task.


class ReasoningExaminer(ScriptedExaminer):
    """Right answers, those of other questions, and texts that answer nothing."""

    wanted, words = "question_solved", "questions solved"
    idle = ("silent_readers",)
    edited_on = 16  # an answer is right or wrong, so a few questions would not tell teams apart

    def teams(self, environment: ReasoningGame, problem: Question, other: Question) -> Teams:
        state = environment.start(problem)
        count = len(environment.agents(problem))
        readers = [environment.right_part(state, agent) for agent in range(count - 1)]
        prompts = [environment.observe(state, agent) for agent in range(count)]
        return {
            "reference": ("working", [*readers, problem.answer]),
            "reference_tagged": ("working", [*readers, f"Thus <answer>{problem.answer}</answer>"]),
            "another_answer": ("other", [*readers, other.answer]),
            "no_answer": ("degenerate", [*readers, ""]),
            "empty": ("degenerate", [""] * count),
            "copied_prompt": ("degenerate", prompts),
            "whole_question": ("degenerate", [*readers, problem.question]),
            "many_numbers": ("degenerate", [*readers, " ".join(map(str, range(-20, 100)))]),
            "only_tags": ("degenerate", [*readers, "<answer></answer>"]),
        }


METRICS = {
    "question_solved": Metric("questions solved", "the answer gets the full score", share=True, solves=True),
    "question_score": Metric("score", "what reasoning-gym gives the answer", share=True),
    "note_words": Metric("words of a note", "mean over the readers", low=0.0, high=float(MOST_WORDS), behaviour=True),
    "silent_readers": behaviour("silent readers", "share of the readers whose note is empty", better="lower"),
}


class ReasoningGymTask(Task):
    """A team, or one agent, answers questions of a dataset of reasoning-gym."""

    settings = ReasoningGymSettings
    problems = (ReasoningGymProblems,)
    measures = METRICS
    primary = "question_solved"
    examiner = ReasoningExaminer
    chosen_by = "answer"
    packages = ("reasoning_gym",)

    def make_problems(self, settings: ReasoningGymProblems) -> Mapping[str, Sequence[Question]]:
        """Return different questions; raises ProblemsError as `dataset_of`, or if there are too few."""
        sizes = settings.sizes.model_dump()
        wanted, config = sum(sizes.values()), json.dumps(settings.config, sort_keys=True)
        entries = dataset_of(settings.dataset, config, settings.seed, wanted * _REPEATED)
        found: dict[str, tuple[int, str, str]] = {}
        for index in range(len(entries)):
            try:
                entry = entries[index]
            except Exception as error:
                raise ProblemsError(
                    f"problems.dataset: {settings.dataset} cannot make its question {index}: {error!r}"
                ) from error
            found.setdefault(normalised_text(entry["question"]), (index, entry["question"], str(entry["answer"])))
            if len(found) == wanted:
                break
        else:
            raise ProblemsError(
                f"problems.sizes: {len(entries)} draws of {settings.dataset} gave {len(found)} different questions, "
                f"and {wanted} are asked for; ask for fewer, or widen problems.config"
            )
        head = common_head([question for _, question, _ in found.values()])
        made = iter(
            Question(settings.dataset, config, settings.seed, len(entries), *place, head, settings.prompt == "plain")
            for place in found.values()
        )
        return {split: [next(made) for _ in range(size)] for split, size in sizes.items()}

    def most_turns(self, params: Any) -> int:
        return 2 if params.environment.agents > 1 else 1

    def check_problems(self, problems: Sequence[Question], executor: Callable[[], Any]) -> None:
        """Check that reasoning-gym scores its own answers as right; raises ProblemsError."""
        if wrong := [problem for problem in problems if score(problem, problem.answer) < _RIGHT]:
            raise ProblemsError(
                f"problems.dataset: reasoning-gym does not score its own answer as right for {len(wrong)} of "
                f"{len(problems)} questions, first {wrong[0].id}; take another dataset or problems.config"
            )

    def read_problem(self, row: Mapping[str, Any]) -> Question:
        return Question(**{key: value for key, value in row.items() if key != "id"})

    def prompts(self, problems: Sequence[Question]) -> list[str]:
        return [shown.observation for problem in problems for shown in _shown(problem, 2)]

    def demonstrate(self, problems: Sequence[Question], count: int, mistakes: float, seed: int) -> list[Demonstration]:
        """Return notes that repeat the part, and right answers; a mistake is the action on another question."""
        rng = Random(digest(["reasoning-gym", seed, count]))
        shown = []
        for _ in range(count):
            # One in three shows the single agent.  Teams of more than two readers see the same kinds of prompts.
            agents = rng.choice((1, 2, 2))
            asked, place = _shown(rng.choice(problems), agents), rng.randrange(agents)
            answered = _shown(rng.choice(problems), agents) if rng.random() < mistakes else asked
            shown.append(Demonstration(asked[place].observation, answered[place].action))
        return shown

    def make(self, settings: ReasoningGymSettings, executor: Callable[[], Any]) -> ReasoningGame:
        return ReasoningGame(settings)

    def single_agent(self, settings: ReasoningGymSettings) -> ReasoningGymSettings | None:
        return settings.model_copy(update={"agents": 1})

    def unsuitable(self, protocol: str, settings: ReasoningGymSettings) -> str:
        """Return why a protocol does not suit: the agents already act one after the other, and read notes."""
        if protocol == "naive_concatenation":
            return "it plays a single turn, and the solver answers in the second"
        return "its agents never act in the same turn: the solver reads the notes of the readers anyway"

    def agent_names(self, params: Any) -> Sequence[str]:
        return agent_names(params.environment)

    def max_acting(self, params: Any) -> int:
        return max(1, params.environment.agents - 1)

    def check(self, params: Any) -> None:
        check_steps(params)

    def terms(self, settings: ReasoningGymSettings) -> Mapping[str, str]:
        return {"answer": f"1 for a right answer{', less for a partly right one' if settings.partial else ''}"}


def _shown(question: Question, agents: int) -> list[Demonstration]:
    """Return what every agent of a team is prompted with and should do, where notes repeat the parts."""
    game = ReasoningGame(ReasoningGymSettings(agents=agents))
    state = game.start(question)
    actions = [game.right_part(state, agent) for agent in range(agents)]
    told = Asked(question, tuple(actions[:-1]))
    return [Demonstration(game.observe(told, agent), actions[agent]) for agent in range(agents)]
