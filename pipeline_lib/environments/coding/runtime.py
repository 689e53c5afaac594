"""The coding environment: a helper agent and a main agent write one function each, and the joined program is tested.

Programs run only in the sandbox.  Only hidden tests give the reward; agents see only visible tests, which run in a
process that never saw a hidden test.  A failure of the sandbox gives no reward instead of a bad one.  All programs of a
call of `CodingEnvironment.step` go to the sandbox in at most two batches: first the programs, then the ablations of
those that pass some test and whose main function calls the helper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pipeline_lib.environment_api.environment import Environment, Outcome
from pipeline_lib.environment_api.exhibit import Check, Exhibit
from pipeline_lib.environments.coding.conventions import convention
from pipeline_lib.environments.coding.feedback import next_observation, notes_for, one_line
from pipeline_lib.environments.coding.problems.problem import CodingProblem
from pipeline_lib.environments.coding.program import HELPER, Program, build_program
from pipeline_lib.environments.coding.rewards import Facts, make_reward, total
from pipeline_lib.environments.coding.schemes import schemes
from pipeline_lib.sandbox import Executor, Job, Status, Verdict

if TYPE_CHECKING:
    from pipeline_lib.environments.coding.settings import CodingEnvironment as CodingSettings

AGENTS = {"pair": ("helper", "main"), "single": ("single",)}

#: The stubs that replace the helper in an ablation: one returns None, one agrees with everything.
ABLATIONS = ("ablated by None", "ablated by agreement")

#: Rewards closer than this count as equal, so that rounding cannot keep an episode from ending.
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn: every agent's text, the feedback to each agent, and the verdict on the hidden tests."""

    actions: tuple[str, ...]
    notes: tuple[tuple[str, ...], ...]
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class CodingState:
    """The state of an episode: the problem, and the turns that were played."""

    problem: CodingProblem
    turns: tuple[Turn, ...] = ()


@dataclass(slots=True)
class _Attempt:
    """One joint action before it has an outcome.

    ``verdicts`` are those of the program on hidden tests (``hidden``) and on visible ones (``visible``), of a program
    that returns None (``none``), and of the program without its helper (one of `ABLATIONS` each), if these were run.
    """

    state: CodingState
    actions: tuple[str, ...]
    program: Program
    last: bool
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    @property
    def failure(self) -> str | None:
        """Return the error of the sandbox if it failed, else None."""
        failed = (v for v in self.verdicts.values() if v.status is Status.INFRA_ERROR)
        return next((verdict.error or "the sandbox failed" for verdict in failed), None)

    def passed(self, kind: str = "hidden") -> float:
        """Return the share of cases passed; 0 if the program was not run because it could pass none."""
        return (self.verdicts[kind].fraction or 0.0) if kind in self.verdicts else 0.0

    def facts(self) -> Facts:
        """Return the facts that the reward depends on."""
        passed = self.passed()
        ablated = [self.passed(kind) for kind in ABLATIONS if kind in self.verdicts]
        needs_helper = bool(ablated) and max(ablated) < passed
        return Facts(self.program, passed, self.passed("none"), needs_helper)

    def job(self, code: str) -> Job:
        """Return the job of running ``code`` on the hidden tests."""
        problem = self.state.problem
        return Job(problem.id, code, problem.hidden_tests, problem.entry_point, problem.prelude)


class CodingEnvironment(Environment[CodingProblem, CodingState]):
    """Two functions by two agents (team ``pair``), or both by one (``single``), tested together.

    Metrics of an outcome: ``tests_passed`` in [0, 1]; ``all_passed``, ``syntax``, ``cooperation``, ``calls_helper``,
    ``ignores_helper`` and ``thin_wrapper``, each 0 or 1; ``structure`` in [0, 1].  A single agent has no partner to
    cooperate with: its ``cooperation`` is always 0.
    """

    retries = True

    def __init__(self, settings: CodingSettings, executor: Callable[[], Executor]) -> None:
        """Make the environment; the sandbox is started by the first step.

        Args:
            settings: the ``environment`` section.
            executor: makes the sandbox.
        """
        self.turns = settings.turns
        self._agents = AGENTS[settings.team]
        self.relied_on = self._agents[:-1]
        self._feedback = settings.feedback
        self._reward = make_reward(settings.reward, settings.team)
        self.reward_bounds = self._reward.bounds
        self._enough = settings.stop_at * self.reward_bounds[1] - _TOLERANCE
        self._make_executor = executor
        self._executor: Executor | None = None

    def agents(self, problem: CodingProblem) -> tuple[str, ...]:
        """Return ``("helper", "main")`` or ``("single",)``."""
        return self._agents

    def start(self, problem: CodingProblem, seed: int = 0) -> CodingState:
        """Return the state before the first turn; nothing in this environment is random.

        Raises:
            ValueError: the problem has no observation for one of the team's agents.
        """
        missing = [agent for agent in self._agents if agent not in problem.observations]
        if missing:
            raise ValueError(
                f"problem {problem.id} has no observation for agent {missing[0]!r} (it has: "
                f"{', '.join(problem.observations) or 'none'}); choose another environment.team"
            )
        return CodingState(problem)

    def observe(self, state: CodingState, agent: int) -> str:
        """Return the agent's first observation, in later turns followed by its own last code and the notes on it."""
        first = state.problem.observations[self._agents[agent]]
        if not state.turns:
            return first
        last = state.turns[-1]
        return next_observation(first, last.actions[agent], last.notes[agent])

    def step(self, states: Sequence[CodingState], joint_actions: Sequence[Sequence[str]]) -> list[Outcome[CodingState]]:
        """Join, run and reward; see the class for metrics.

        ``details`` has ``status`` (of the program on the hidden tests; ``missing`` without an entry point;
        ``untested``, without reward, if the problem has no hidden tests), ``error`` (a line that may quote hidden
        tests: for people, never for agents), ``schemes``, ``convention`` and ``conflicts``.  If a test fails it also
        has ``caused_by`` (the helper, if the main function calls it and it did not define the function, else an empty
        string), and if visible tests were run ``visible``, the share of them that passed.

        Raises:
            BadTests: the tests of a problem have no case that a program could fail; the message names the problem.
        """
        attempts = [self._attempt(state, actions) for state, actions in zip(states, joint_actions, strict=True)]
        self._run([(attempt, kind, job) for attempt in attempts for kind, job in self._programs(attempt)])
        self._run([(attempt, kind, job) for attempt in attempts for kind, job in _ablations(attempt)])
        return [self._outcome(attempt) for attempt in attempts]

    def stub(self, state: CodingState, agent: int) -> str:
        """Return the agent's function with a body that returns None."""
        return f"def {self._function(state, agent)}(*args, **kwargs):\n    return None\n"

    def divided(self, problem: CodingProblem) -> bool:
        """Return True for generated problems; of a dataset's problem, every agent is told the whole task."""
        return problem.source == "generated" and len(self._agents) > 1

    def right_part(self, state: CodingState, agent: int) -> str | None:
        """Return the agent's function of the problem's known solution, if it has that function."""
        return state.problem.reference.get(self._function(state, agent))

    def _function(self, state: CodingState, agent: int) -> str:
        return HELPER if self._agents[agent] in self.relied_on else state.problem.entry_point

    def exhibit(self, state: CodingState, actions: Sequence[str]) -> Exhibit:
        """Return the joined program and, if it led to this state, the result of each hidden test: for people only."""
        program = build_program(tuple(actions), state.problem.entry_point)
        last = state.turns[-1] if state.turns else None
        cases = last.verdict.cases if last is not None and last.verdict is not None else ()
        if last is not None and last.actions != tuple(actions):
            cases = ()
        checks = tuple(
            Check(case.source or f"case {case.index}", case.result == "ok", one_line(case.message)) for case in cases
        )
        return Exhibit(program.code, "python", checks)

    def close(self) -> None:
        """End the sandbox's processes; a later step starts new ones."""
        if self._executor is not None:
            self._executor.close()
            self._executor = None

    def _attempt(self, state: CodingState, actions: Sequence[str]) -> _Attempt:
        if len(actions) != len(self._agents):
            raise ValueError(f"got {len(actions)} actions for the {len(self._agents)} agents of {state.problem.id}")
        program = build_program(tuple(actions), state.problem.entry_point)
        return _Attempt(state, tuple(actions), program, last=len(state.turns) + 1 >= self.turns)

    def _programs(self, attempt: _Attempt) -> Iterator[tuple[str, Job]]:
        """Yield the jobs of the first batch."""
        problem = attempt.state.problem
        if not attempt.program.main.defined or not problem.hidden_tests:
            return
        job = attempt.job(attempt.program.code)
        yield "hidden", job
        if self._feedback == "tests" and not attempt.last and problem.visible_tests:
            # A separate job, because a program that has seen hidden inputs could print them where agents read them.
            yield "visible", replace(job, tests=problem.visible_tests)
        if self._reward.needs_baseline:
            yield "none", replace(job, code=f"def {problem.entry_point}(*args, **kwargs):\n    return None\n")

    def _run(self, wanted: Sequence[tuple[_Attempt, str, Job]]) -> None:
        """Run jobs and keep their verdicts; the executor runs equal jobs once."""
        if not wanted:
            return
        if self._executor is None:
            self._executor = self._make_executor()
        # What agents are shown comes first: whatever a program has left, it has not seen hidden inputs by then.
        wanted = sorted(wanted, key=lambda item: item[1] != "visible")
        verdicts = self._executor.run([job for _, _, job in wanted])
        for (attempt, kind, _), verdict in zip(wanted, verdicts, strict=True):
            attempt.verdicts[kind] = verdict

    def _outcome(self, attempt: _Attempt) -> Outcome[CodingState]:
        program = attempt.program
        told = self._feedback == "tests" and not attempt.last
        visible = attempt.verdicts.get("visible")
        notes = tuple(notes_for(role, program, visible) if told else () for role in program.roles)
        turn = Turn(attempt.actions, notes, attempt.verdicts.get("hidden"))
        state = replace(attempt.state, turns=(*attempt.state.turns, turn))
        if attempt.failure is not None:
            details = {"status": Status.INFRA_ERROR.value, "error": one_line(attempt.failure)}
            return Outcome(None, {}, {}, state, done=True, details=details)
        if not attempt.state.problem.hidden_tests:  # a typed problem may have none
            return Outcome(None, {}, {}, state, done=True, details={"status": "untested"})
        facts = attempt.facts()
        terms = self._reward.terms(facts)
        reward = total(terms)
        return Outcome(
            reward=reward,
            terms=terms,
            metrics=_metrics(facts),
            state=state,
            done=attempt.last or reward >= self._enough,
            details=_details(attempt),
        )


def _ablations(attempt: _Attempt) -> Iterator[tuple[str, Job]]:
    """Yield the jobs that show whether the helper matters, if the program passes any test."""
    if attempt.failure is None and attempt.passed() > 0:
        for kind, code in zip(ABLATIONS, attempt.program.ablated, strict=False):
            yield kind, attempt.job(code)


def _metrics(facts: Facts) -> dict[str, float]:
    program = facts.program
    pair = len(program.roles) > 1
    return {
        "tests_passed": facts.passed,
        "all_passed": float(facts.passed >= 1.0),
        "structure": facts.structure,
        "syntax": float(program.parses),
        "cooperation": float(pair and facts.needs_helper),
        "calls_helper": float(program.calls_helper),
        "ignores_helper": float(program.ignores_helper),
        "thin_wrapper": float(program.thin_wrapper),
    }


def _details(attempt: _Attempt) -> dict[str, Any]:
    program, hidden = attempt.program, attempt.verdicts.get("hidden")
    details: dict[str, Any] = {"status": "missing" if hidden is None else hidden.status.value}
    if hidden is not None and hidden.error:
        details["error"] = one_line(hidden.error)
    if program.calls_helper:
        entry_point = attempt.state.problem.entry_point
        details["schemes"] = sorted(schemes(program.parts[-1], entry_point))
        details["convention"] = convention(program.parts[0])
    if len(program.roles) > 1 and attempt.passed() < 1.0:
        details["caused_by"] = AGENTS["pair"][0] if program.lacks_helper else ""
    if "visible" in attempt.verdicts:
        details["visible"] = attempt.passed("visible")
    if program.conflicts:
        details["conflicts"] = list(program.conflicts)
    return details
