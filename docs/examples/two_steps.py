"""An environment with programs, in full: two agents write a function each, and hidden tests run both together.

``first`` is told what happens to a number first, and ``second`` what happens then: ``main(x)`` is ``second(first(x))``.
A single agent is told both, and writes both.  Where Python finds this file, `environment: {kind: "two_steps:TwoSteps"}`
is all that the chain needs: problems, a warm start, an audit of the reward, training, a baseline, a verdict.
"""

from __future__ import annotations

import ast
import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from pipeline_lib.audit.examiner import ScriptedExaminer, Teams
from pipeline_lib.environment_api.environment import Outcome
from pipeline_lib.environment_api.metrics import Metric, behaviour
from pipeline_lib.environment_api.reward import total
from pipeline_lib.environment_api.task import Demonstration, TeamTask
from pipeline_lib.environment_kit.programs import Attempt, ProgramEnvironment, Run, failed, parsed
from pipeline_lib.problems.splitting import FAMILY_SHARES, draw_distinct, split_of
from pipeline_lib.sandbox import Executor, Job
from pipeline_lib.settings.environment import EnvironmentSection
from pipeline_lib.settings.problems import FamilyProblems, SplitSizes
from pipeline_lib.storage import digest

# ---- Settings: the sections `environment` and `problems` of params.yaml.


class StepsSettings(EnvironmentSection):
    """Two functions by two agents, or both by one; ``kind`` is left to the name by which the class is found."""

    team: Literal["pair", "single"] = Field("pair", description="pair: a function each; single: one agent writes both")
    tests: float = Field(1.0, gt=0, description="reward of passing all hidden tests")
    form: float = Field(0.1, ge=0, description="reward of defining the functions")


class StepsProblems(FamilyProblems):
    """Problems drawn at random."""

    kind: Literal["steps"] = "steps"
    sizes: SplitSizes = SplitSizes(train=128, validation=24, test=32)


# ---- Problems, and what the agents are told.

ROLES = ("first", "second")
OPERATIONS = {"plus": "x + {k}", "minus": "x - {k}", "times": "x * {k}", "modulo": "x % {k}"}


@dataclass(frozen=True, slots=True)
class Steps:
    """Two steps, an expression of ``x`` each, and the inputs of the hidden tests."""

    id: str
    family: str
    first: str
    second: str
    inputs: tuple[int, ...]

    @property
    def content_hash(self) -> str:
        return digest([self.first, self.second])

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def function(self, role: str) -> str:
        """Return the right function of a role."""
        return f"def {role}(x):\n    return {getattr(self, role)}\n"

    def prompt(self, role: str) -> str:
        """Return what an agent is told."""
        told = [f"{each}(x): {getattr(self, each)}" for each in ROLES if role in (each, "single")]
        return "\n".join([*told, ""])

    def hidden_tests(self) -> str:
        """Return the source of ``def check(candidate)``; the sandbox counts its asserts."""
        answers = {x: eval(self.second, {"x": eval(self.first, {"x": x})}) for x in self.inputs}
        return "\n".join(["def check(candidate):", *(f"    assert candidate({x}) == {y}" for x, y in answers.items())])


def draw(rng: random.Random) -> Steps:
    """Return a random problem; each is a family of its own, so all of them are independent."""
    steps = [(operation, rng.randint(2, 9)) for operation in rng.choices(list(OPERATIONS), k=2)]
    name = "-".join(f"{operation}{k}" for operation, k in steps)
    first, second = (OPERATIONS[operation].format(k=k) for operation, k in steps)
    return Steps(name, name, first, second, tuple(rng.sample(range(-20, 21), 6)))


# ---- Play: how texts become programs, and verdicts a reward.


@dataclass(frozen=True, slots=True)
class State:
    """There is one turn, so the problem is all that a state holds."""

    problem: Steps


@dataclass(slots=True)
class StepsAttempt(Attempt):
    """A joint action, and its program."""

    problem: Steps
    code: str
    defined: float


class StepsEnvironment(ProgramEnvironment[Steps, State, StepsAttempt]):
    """The joint program runs in the sandbox, on tests that no agent sees."""

    turns = 1
    relied_on = ("first",)

    def __init__(self, settings: StepsSettings, executor: Callable[[], Executor]) -> None:
        super().__init__(executor)
        self._settings = settings
        self._agents = ROLES if settings.team == "pair" else ("single",)
        self.reward_bounds = (0.0, settings.tests + settings.form)

    def agents(self, problem: Steps) -> tuple[str, ...]:
        return self._agents

    def start(self, problem: Steps, seed: int = 0) -> State:
        return State(problem)

    def observe(self, state: State, agent: int) -> str:
        return state.problem.prompt(self._agents[agent])

    def attempt(self, state: State, actions: tuple[str, ...]) -> StepsAttempt:
        code = "\n\n".join([*actions, "def main(x):\n    return second(first(x))\n"])
        return StepsAttempt(actions, state.problem, code, share_defined(actions))

    def programs(self, attempts: Sequence[StepsAttempt]) -> Iterator[Run]:
        for attempt in attempts:
            problem = attempt.problem
            yield attempt.verdicts, "hidden", Job(problem.id, attempt.code, problem.hidden_tests(), "main")

    def outcome(self, state: State, attempt: StepsAttempt) -> Outcome[State]:
        if attempt.failure is not None:  # of the sandbox: no reward is not a bad reward
            return failed(state, attempt.failure)
        passed = attempt.passed("hidden")
        terms = {"tests": self._settings.tests * passed, "form": self._settings.form * attempt.defined}
        metrics = {"tests_passed": passed, "all_passed": float(passed >= 1.0), "defined": attempt.defined}
        details = {"status": attempt.verdicts["hidden"].status.value}
        return Outcome(total(terms), terms, metrics, state, done=True, details=details)

    # What follows is for the monitors and the audit.

    def divided(self, problem: Steps) -> bool:
        return len(self._agents) > 1

    def stub(self, state: State, agent: int) -> str:
        return "\n".join(f"def {role}(x):\n    return None\n" for role in self._roles(agent))

    def right_part(self, state: State, agent: int) -> str:
        return "\n".join(state.problem.function(role) for role in self._roles(agent))

    def _roles(self, agent: int) -> tuple[str, ...]:
        return ROLES if self._agents[agent] == "single" else (self._agents[agent],)


def share_defined(texts: Sequence[str]) -> float:
    """Return the share of the functions that texts define; a text that is not Python defines nothing."""
    trees = [tree for text in texts if (tree := parsed(text)) is not None]
    names = {node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)}
    return len(names & set(ROLES)) / len(ROLES)


# ---- The audit: teams whose worth is known show whether the reward pays for the task.


class StepsExaminer(ScriptedExaminer):
    """Right functions, functions of another problem, and texts that do nothing."""

    wanted, words = "tests_passed", "hidden tests passed"
    turns = 1

    def teams(self, environment: Any, problem: Any, other: Any) -> Teams:
        state, agents = environment.start(problem), range(len(environment.agents(problem)))
        right = [environment.right_part(state, agent) for agent in agents]
        return {
            "reference": ("working", right),
            "another_problem": ("other", [environment.right_part(environment.start(other), agent) for agent in agents]),
            "second_missing": ("other", [right[0].partition("def second")[0], *([""] * (len(agents) - 1))]),
            "stubs": ("degenerate", [environment.stub(state, agent) for agent in agents]),
            "empty": ("degenerate", [""] * len(agents)),
            "copied_prompt": ("degenerate", [environment.observe(state, agent) for agent in agents]),
        }


# ---- The task: what the chain asks for.

METRICS = {
    "tests_passed": Metric("hidden tests passed", "share of the hidden tests that pass", share=True),
    "all_passed": Metric("all tests passed", "the program passes every hidden test", share=True, solves=True),
    "defined": behaviour("functions defined", "share of the two functions that are defined"),
}


class TwoSteps(TeamTask):
    """Two agents write a step of one computation each; `TeamTask` has the form for a single agent."""

    settings = StepsSettings
    problems = (StepsProblems,)
    measures = METRICS
    primary = "tests_passed"
    examiner = StepsExaminer

    def make_problems(self, settings: StepsProblems) -> Mapping[str, Sequence[Steps]]:
        rng = random.Random(digest(["steps", settings.seed]))
        return {split: self._split(split, settings, rng) for split in FAMILY_SHARES}

    def _split(self, split: str, settings: StepsProblems, rng: random.Random) -> list[Steps]:
        def one(_: int) -> Steps | None:
            problem = draw(rng)
            return problem if split_of(problem.family, settings.seed, settings.apart_from) == split else None

        return draw_distinct(split, getattr(settings.sizes, split), one, "ask for fewer")

    def read_problem(self, row: Mapping[str, Any]) -> Steps:
        return Steps(**{**row, "inputs": tuple(row["inputs"])})

    def prompts(self, problems: Sequence[Steps]) -> list[str]:
        return [problem.prompt(role) for problem in problems for role in (*ROLES, "single")]

    def demonstrate(self, problems: Sequence[Steps], count: int, mistakes: float, seed: int) -> list[Demonstration]:
        rng, shown = random.Random(digest(["steps", seed])), []
        for _ in range(count):
            problem, role = rng.choice(problems), rng.choice((*ROLES, "single"))
            source = rng.choice(problems) if rng.random() < mistakes else problem
            action = "\n".join(source.function(each) for each in ROLES if role in (each, "single"))
            shown.append(Demonstration(problem.prompt(role), action))
        return shown

    def make(self, settings: StepsSettings, executor: Callable[[], Executor]) -> StepsEnvironment:
        return StepsEnvironment(settings, executor)
