"""The interface of everything that is specific to one environment.

The chain uses a `Task` and knows no environment by name: its settings, its problems, how it is played, measured,
audited and shown.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from pydantic import BaseModel

    from pipeline_lib.environment_api.environment import Environment
    from pipeline_lib.environment_api.metrics import Metrics


@runtime_checkable
class Problem(Protocol):
    """The common interface of all problems."""

    @property
    def id(self) -> str:
        """Return its id, unique among all problems of its source."""

    @property
    def family(self) -> str:
        """Return its family, the cluster that statistics resample and that splits keep together if possible."""

    @property
    def content_hash(self) -> str:
        """Return a digest of the question, the same for two problems that differ only in their ids."""

    def to_json(self) -> dict[str, Any]:
        """Return the problem as a JSON object, which `Task.read_problem` reads."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """An example that a model imitates in its warm start."""

    observation: str  #: the prompt
    action: str  #: the text that follows it
    #: What stands between the two: texts that called a tool, each with the result.
    calls: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)
    #: As `Environment.tool_tokens`; None: results are not cut.
    tool_tokens: int | None = field(default=None, kw_only=True)


class Task(ABC):
    """One kind of environment; it holds no state."""

    #: Model of the ``environment`` section; the key ``kind`` is added if the model does not define it.
    settings: ClassVar[type[BaseModel]]
    #: Models of the ``problems`` section, distinguished by the literal of their key ``kind``; the first is the default.
    problems: ClassVar[tuple[type[BaseModel], ...]]
    problem: ClassVar[Any]  #: class of a problem, whose ``from_json`` rebuilds it, unless `read_problem` does
    measures: ClassVar[Metrics]  #: the metrics of outcomes, in the order in which they are shown
    primary: ClassVar[str]  #: the primary metric, unless settings name another one
    examiner: ClassVar[type[Any]]  #: examines its rewards, an `Examiner` (`pipeline_lib.audit.examiner`)
    #: By kind of the reward, what its terms mean, each a clause without a capital and a full stop.
    meanings: ClassVar[Mapping[str, Mapping[str, str]]] = MappingProxyType({})
    #: Limits that a checkpoint must keep to be selected, unless settings define them; as ``evaluate.guards``.
    guards: ClassVar[tuple[Mapping[str, Any], ...]] = ()
    #: In environments with the setting ``turns``, every turn is an attempt at the same thing, as `Environment.retries`
    #: says; the verdict then compares the last turn with the first.
    retries: ClassVar[bool] = False
    #: Where the code of the rewards of ours is, ``package.module:Class``; empty: it is this class.
    rewarded_in: ClassVar[str] = ""
    #: By which of an outcome's ``details`` agents could choose one of several attempts, as `Environment.for_choice`
    #: says; empty if there is nothing.
    chosen_by: ClassVar[Literal["", "visible", "answer"]] = ""
    runs_programs: ClassVar[bool] = False  #: what agents write runs in the sandbox, whose memory is planned
    rewards_agents: ClassVar[bool] = False  #: outcomes say what each agent earns by itself (`Outcome.agent_rewards`)
    #: Distributions that are not among the library's own requirements and on whose version results depend.
    packages: ClassVar[tuple[str, ...]] = ()
    #: Demonstrations quote texts of agents, so the embedded model can play protocols in which agents read each other.
    demonstrates_reading: ClassVar[bool] = False

    @abstractmethod
    def make_problems(self, settings: Any) -> Mapping[str, Sequence[Problem]]:
        """Return the problems of the splits ``train``, ``validation`` and ``test``, and of any further ones, by split.

        Args:
            settings: the ``problems`` section.

        Raises:
            ValueError: the source cannot be read, is empty or too small.
        """

    def check_problems(self, problems: Sequence[Any], executor: Callable[[], Any]) -> None:
        """Check problems before they are written, for example by running the solutions that they came with.

        Args:
            problems: of all splits, at least one.
            executor: creates the sandbox (`pipeline_lib.sandbox.Executor`).

        Raises:
            ValueError: some cannot be used; the message names them and says what to do.
        """

    def read_problem(self, row: Mapping[str, Any]) -> Problem:
        """Rebuild a problem from its JSON object; unknown or missing keys raise TypeError."""
        read: Problem = self.problem.from_json(row)
        return read

    def parse_problem(self, text: str) -> Problem:
        """Return the problem that a user typed, in the usual notation of this environment.

        Raises:
            ValueError: the text is not valid, or problems of this environment must be JSON.
        """
        raise ValueError("problems of this environment must be JSON, as in data/problems/*.jsonl")

    def without_code(self, problem: Any) -> Problem:
        """Return a problem of an untrusted client without code that would run as trusted.

        An environment whose problems contain code (for example tests) must override this; playing the returned problem
        must not run such code.
        """
        unchanged: Problem = problem
        return unchanged

    def prompts(self, problems: Sequence[Any]) -> list[str]:
        """Return the first prompts of all agents that follow from the problems; the tokenizer is trained on them.

        A policy's context must be longer than the longest of them.
        """
        return []

    def demonstrate(self, problems: Sequence[Any], count: int, mistakes: float, seed: int) -> Sequence[Demonstration]:
        """Return ``count`` demonstrations for the warm start; the same arguments give the same list.

        Args:
            problems: the training split.
            count: number of demonstrations.
            mistakes: share in [0, 1) of demonstrations with a mistake.
            seed: seed of all random draws.

        Raises:
            ValueError: this environment has none.
        """
        raise ValueError("this environment has no demonstrations; use a pretrained policy without a warm start")

    def demonstrate_later(
        self,
        problems: Sequence[Any],
        count: int,
        mistakes: float,
        seed: int,
        settings: Any,
        executor: Callable[[], Any],
    ) -> Sequence[Demonstration]:
        """Return ``count`` demonstrations that depend on settings, as later turns and tools do, or none of these.

        Their observations must be those of the environment itself (`Environment.observe`), so that the base reads what
        it will be shown.  It is asked if `has_later_turns` says so.

        Args:
            problems, count, mistakes, seed: as `demonstrate`.
            settings: the ``environment`` section.
            executor: creates the sandbox.

        Raises:
            ValueError: they cannot be made.
        """
        return ()

    def has_later_turns(self, params: Any) -> bool:
        """Return whether the base depends on settings of the environment through `demonstrate_later`.

        Args:
            params: all settings.
        """
        shown = type(self).demonstrate_later is not Task.demonstrate_later
        return shown and params.policy.warm_start is not None and getattr(params.environment, "turns", 1) > 1

    def all_follow_settings(self, params: Any) -> bool:
        """Return whether `demonstrate_later` makes all demonstrations, since first prompts depend on settings, too.

        Args:
            params: all settings, for which `has_later_turns` holds.
        """
        return False

    def unreadable(self, params: Any) -> str:
        """Return why a warm start cannot show how to play; empty if it can.

        The embedded model, which knows only what it was shown, then cannot play; of a pretrained one the warm start is
        refused.

        Args:
            params: all settings.
        """
        return "" if type(self).demonstrate is not Task.demonstrate else "it has no demonstrations (Task.demonstrate)"

    @abstractmethod
    def make(self, settings: Any, executor: Callable[[], Any]) -> Environment[Any, Any]:
        """Return the environment in which a team acts.

        Args:
            settings: the ``environment`` section.
            executor: creates the sandbox (`pipeline_lib.sandbox.Executor`); an environment without programs never
                calls it.
        """

    def single_agent(self, settings: Any) -> BaseModel | None:
        """Return the settings of the form in which one agent does all the work, or None if there is none."""
        return None

    def most_turns(self, params: Any) -> int:
        """Return the largest number of turns of an episode; the setting ``environment.turns``, if there is one."""
        return int(getattr(params.environment, "turns", 1))

    def unsuitable(self, protocol: str, settings: Any) -> str:
        """Return why a baseline protocol does not suit this environment; empty if it does."""
        return ""

    def unrepeatable(self, settings: Any) -> str:
        """Return why a state cannot be stepped from more than once; empty if it can.

        Plans of credit other than ``aligned`` step several times from a state and compare the outcomes.  This requires
        that `Environment.step` does not change the state, and that all randomness is in the state.  An environment
        without these properties (a running service, random draws without a seed) returns a reason here.
        """
        return ""

    def agent_names(self, params: Any) -> Sequence[str] | None:
        """Return the names of all agents that a team can have; None if settings do not determine them."""
        return None

    def max_acting(self, params: Any) -> int | None:
        """Return the maximum number of agents that act in one turn; None if settings do not determine it."""
        names = self.agent_names(params)
        return None if names is None else len(names)

    def check(self, params: Any) -> None:
        """Raise ValueError if the settings of several sections do not fit this environment."""

    def notes(self, settings: Any) -> list[str]:
        """Return notes on the compared teams for the reader of the report, one paragraph each."""
        return []

    def terms(self, settings: Any) -> Mapping[str, str]:
        """Return what the reward's terms mean, as `meanings` says; empty if unknown."""
        return self.meanings.get(getattr(getattr(settings, "reward", None), "kind", ""), {})

    def team_terms(self, settings: Any) -> Sequence[str]:
        """Return the terms that the reward pays to a team and never to the single agent's form."""
        return ()

    def schemes(self) -> Mapping[str, str]:
        """Return the ways to work together that outcomes may name (`details["schemes"]`), and what each means."""
        return {}

    def metrics(self) -> Metrics:
        """Return the metrics of outcomes."""
        return self.measures

    def audit(self) -> Any:
        """Return the examiner of this environment's rewards."""
        return self.examiner()

    def reward_code(self, settings: Any) -> str:
        """Return the location of the reward's code, ``package.module:Class``; an edit there requires a new audit."""
        reward: Any = getattr(settings, "reward", None)
        if getattr(reward, "kind", "") == "custom":
            return str(reward.path)
        return self.rewarded_in or f"{type(self).__module__}:{type(self).__qualname__}"

    def figures(self, data: Any) -> Sequence[Any]:
        """Return figures that only this environment has.

        Args:
            data: the data of the report (`pipeline_lib.report.data.ReportData`).

        Returns:
            `pipeline_lib.report.style.Figure` objects; their tables are written for ``dvc plots`` too.
        """
        return ()


def check_steps(params: Any) -> None:
    """Check that a training step needs no more problems than are generated; for `Task.check`.

    Raises:
        ValueError: it needs more.
    """
    wanted, made = params.train.problems_per_step, params.problems.sizes.train
    if wanted > made:
        raise ValueError(f"train.problems_per_step ({wanted}) is more than problems.sizes.train ({made})")


def check_critic(params: Any, what: str) -> None:
    """Check that every agent's base can be sampled from beside the team; for `Task.check`.

    Args:
        params: all settings.
        what: the setting that asks for a critic, as the error begins.

    Raises:
        ValueError: an agent's weights are on a server, or the engine has no room for further policies.
    """
    if params.rollouts.kind != "transformers":
        raise ValueError(
            f"{what}, and the engine {params.rollouts.kind} would need one more engine for the base: set "
            "rollouts.kind to transformers, or take the critic out"
        )
    served = [name for name, agent in params.policy.agents.items() if agent.server is not None]
    if served:
        raise ValueError(
            f"{what}, and the base of policy.agents.{served[0]} is on a server: a critic must give the same answers "
            "again. Take the critic out, or ask a server as an expert"
        )


class TeamTask(Task):
    """A task for agents that act at the same time, or for one; a further turn is a further attempt."""

    retries = True

    def single_agent(self, settings: Any) -> Any:
        """Return the form in which one agent does the work of all."""
        return settings.model_copy(update={"team": "single"})

    def unsuitable(self, protocol: str, settings: Any) -> str:
        """Return why a protocol does not suit: it needs several agents, or a second turn."""
        if settings.team == "single":
            return "environment.team is single, and a single agent has no other agents to read"
        if protocol == "naive_concatenation" and getattr(settings, "turns", 1) == 1:
            turn = "environment.turns 1" if hasattr(settings, "turns") else "a single turn"
            return f"with {turn} it is the same as the base"
        return ""

    def notes(self, settings: Any) -> list[str]:
        """Return a note if the base equals a baseline."""
        if settings.team != "single" and getattr(settings, "turns", 1) == 1:
            return ["With one turn, the base is the same as the baseline naive concatenation."]
        return []
