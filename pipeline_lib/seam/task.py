"""Everything that is special to one environment, behind one class.

The chain asks a `Task` and knows no environment by name: what its settings are, where its problems come from, how it is
played, measured, audited and shown.  The class and its methods import what they need when they are called, so that a
stage depends on the code of those methods only that it calls (`tasks.identity.stages`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from pydantic import BaseModel

    from pipeline_lib.seam.environment import Environment
    from pipeline_lib.seam.metrics import Metrics


class Problem(Protocol):
    """What everybody needs of a problem."""

    @property
    def id(self) -> str:
        """Return its name, unique among all problems of its source."""

    @property
    def family(self) -> str:
        """Return the cluster that statistics resample and that splits keep together where they can."""

    @property
    def content_hash(self) -> str:
        """Return a digest of what is asked, the same for two problems that differ in their names only."""

    def to_json(self) -> dict[str, Any]:
        """Return the problem as a JSON object, which `Task.read_problem` reads."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """What the embedded model imitates in its warm start.

    Attributes:
        observation: the prompt.
        action: the text that follows it.
    """

    observation: str
    action: str


class Task(ABC):
    """One kind of environment; it holds no state.

    Attributes:
        settings: model of the ``environment`` section; its key ``kind`` is added where the model leaves it open.
        problems: models of the ``problems`` section, told apart by the literal of their key ``kind``; the first is the
            default.
        primary: the metric that the verdict is about unless settings name another one.
        guards: what a checkpoint must keep to be selected unless settings say it, each as ``evaluate.guards`` has it.
        demonstrates_reading: demonstrations quote what agents wrote, so the embedded model can play protocols in which
            agents read each other.
    """

    settings: ClassVar[type[BaseModel]]
    problems: ClassVar[tuple[type[BaseModel], ...]]
    primary: ClassVar[str]
    guards: ClassVar[tuple[Mapping[str, Any], ...]] = ()
    demonstrates_reading: ClassVar[bool] = False

    @abstractmethod
    def make_problems(self, settings: Any) -> Mapping[str, Sequence[Problem]]:
        """Return the problems of the splits ``train``, ``validation`` and ``test``, and of further ones, by split.

        Args:
            settings: the ``problems`` section.

        Raises:
            ValueError: the source cannot be read, is empty or too small.
        """

    @abstractmethod
    def read_problem(self, row: Mapping[str, Any]) -> Problem:
        """Rebuild a problem from its JSON object; unknown or missing keys raise TypeError."""

    def type_problem(self, text: str) -> Problem:
        """Return the problem that somebody typed, in the words that are natural here.

        Raises:
            ValueError: it cannot be understood, or problems of this environment are given as JSON only.
        """
        raise ValueError("problems of this environment are given as JSON, as they stand in data/problems/*.jsonl")

    def without_code(self, problem: Any) -> Problem:
        """Return a problem that a stranger sent, without whatever of it would be run as trusted code.

        An environment whose problems carry code (tests, say) must override it; playing what is returned must run none.
        """
        problem_without: Problem = problem
        return problem_without

    def prompts(self, problems: Sequence[Any]) -> list[str]:
        """Return what agents are prompted with at first, as far as problems alone say it: the tokenizer is made of it.

        A policy's context must have room for the longest.
        """
        return []

    def demonstrate(self, problems: Sequence[Any], count: int, mistakes: float, seed: int) -> Sequence[Demonstration]:
        """Return ``count`` demonstrations for the warm start of the embedded model; the same arguments, the same list.

        Args:
            problems: the training split.
            count: how many.
            mistakes: share in [0, 1) of flawed ones.
            seed: fixes every draw.

        Raises:
            ValueError: this environment has none.
        """
        raise ValueError("nobody demonstrates this environment to the embedded model; use a pretrained policy")

    @abstractmethod
    def make(self, settings: Any, executor: Callable[[], Any]) -> Environment[Any, Any]:
        """Return the environment that a team acts in.

        Args:
            settings: the ``environment`` section.
            executor: makes the sandbox (`pipeline_lib.sandbox.Executor`); one that runs no programs never calls it.
        """

    def single_agent(self, settings: Any) -> BaseModel | None:
        """Return the settings of the form in which one agent does all the work, or None if there is none."""
        return None

    def senseless(self, protocol: str, settings: Any) -> str:
        """Return why a baseline protocol makes no sense here; empty if it does."""
        return ""

    def unrepeatable(self, settings: Any) -> str:
        """Return why two joint actions cannot be compared in one and the same state; empty if they can.

        Credit beyond ``aligned`` steps several times from a state, and compares what came of it: `Environment.step`
        leaves the state as it was, and all chance is in the state.  An environment of which that is not true (a
        running service, a draw without a seed) says so here.
        """
        return ""

    def acting_together(self, params: Any) -> int | None:
        """Return the most agents that act in one turn, as far as the settings say it; None if they do not."""
        return None

    def check(self, params: Any) -> None:
        """Raise ValueError where the settings of several sections do not go with this environment."""

    def notes(self, settings: Any) -> list[str]:
        """Return what a reader of the report must know of the teams compared, a paragraph each."""
        return []

    @abstractmethod
    def metrics(self) -> Metrics:
        """Return the metrics that outcomes have, in the order in which they are shown."""

    @abstractmethod
    def audit(self) -> Any:
        """Return who audits a reward of this environment (`pipeline_lib.audit.examiner.Examiner`)."""

    def reward_code(self, settings: Any) -> str:
        """Return where the code of the reward is, ``package.module:Class``; an edit there calls for a new audit."""
        return f"{type(self).__module__}:{type(self).__qualname__}"

    def figures(self, data: Any) -> Sequence[Any]:
        """Return the figures that only this environment has.

        Args:
            data: what the report is made of (`pipeline_lib.report.data.ReportData`).

        Returns:
            `pipeline_lib.report.style.Figure` objects; their tables are written for ``dvc plots`` too.
        """
        return ()


def check_steps(params: Any) -> None:
    """Refuse steps of training that need more problems than are generated; for `Task.check` of whoever generates.

    Raises:
        ValueError: they do.
    """
    wanted, made = params.train.problems_per_step, params.problems.sizes.train
    if wanted > made:
        raise ValueError(f"train.problems_per_step ({wanted}) is more than problems.sizes.train ({made})")
