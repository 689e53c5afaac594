"""The environment: every agent writes one part of a program; parts and program are tested.

All programs of a call of `ModulesEnvironment.step` go to the sandbox in two batches: first each joined program with the
system tests and each part, among right parts, with its own; then the joined programs that pass some system test, with a
stub in place of each part.  Programs run only in the sandbox, and all tests are hidden: nothing that an agent sees
depends on them.  A failure of the sandbox gives no reward instead of a bad one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipeline_lib.environment_api.environment import Environment, Outcome
from pipeline_lib.environment_api.exhibit import Check, Exhibit
from pipeline_lib.environments.modules.problems.design import LOWER
from pipeline_lib.environments.modules.problems.problem import SINGLE, ModulesProblem
from pipeline_lib.environments.modules.program import below, form, program, single_text, sources_of, unfenced
from pipeline_lib.environments.modules.rewards import Facts, make_reward
from pipeline_lib.sandbox import Executor, Job, Status, Verdict

if TYPE_CHECKING:
    from pipeline_lib.environments.modules.settings import ModulesEnvironment as ModulesSettings

#: Longest text quoted from a test or an error, in characters.
_MAX_QUOTE = 200


@dataclass(frozen=True, slots=True)
class ModulesState:
    """The state of an episode: the problem, and after the only turn what was written and the system tests' verdict."""

    problem: ModulesProblem
    actions: tuple[str, ...] = ()
    verdict: Verdict | None = None


@dataclass(slots=True)
class _Attempt:
    """One joint action before it has an outcome.

    ``verdicts`` are by kind and part: ``system`` of the program, ``unit`` of a part among the right parts of each known
    solution, ``without`` of the program with a stub in place of the part, ``expected`` of the known solution of a class
    with a stub in place of the part.
    """

    problem: ModulesProblem
    actions: tuple[str, ...]
    sources: Mapping[str, str]
    verdicts: dict[tuple[str, str], list[Verdict]] = field(default_factory=lambda: defaultdict(list))

    @property
    def failure(self) -> str | None:
        """Return the error of the sandbox if it failed, else None."""
        failed = (v for found in self.verdicts.values() for v in found if v.status is Status.INFRA_ERROR)
        return next((verdict.error or "the sandbox failed" for verdict in failed), None)

    def passed(self, kind: str, part: str = "") -> float:
        """Return the share of cases passed, with the known solution with which most pass; 0 if nothing was run."""
        return max((verdict.fraction or 0.0 for verdict in self.verdicts.get((kind, part), ())), default=0.0)

    def facts(self) -> Facts:
        """Return the facts that the reward depends on."""
        forms = {part: form(self.problem, part, source) for part, source in self.sources.items()}
        return Facts(forms, {part: self.passed("unit", part) for part in self.sources}, self._system())

    def _system(self) -> float:
        """Return the share of system tests passed; of a class, without those that one part passes for another.

        Methods may change others when they are called.  That shows in the tests of a part's own methods, if some pass
        with a stub in its place that do not in the known solution.  Then no test that needs this part counts.
        """
        if not self.passed("system") or self.problem.layout != "class":
            return self.passed("system")
        passing, counted = self._held("system"), self._held("system")
        for part in self.problem.parts:
            needing = passing - self._held("expected", part)
            own = {case.source for verdict in self.verdicts.get(("unit", part), ()) for case in verdict.cases}
            if needing & own & self._held("without", part):
                counted -= needing
        return len(counted) / self.verdicts["system", ""][0].total

    def _held(self, kind: str, part: str = "") -> set[str]:
        return {case.source for v in self.verdicts.get((kind, part), ()) for case in v.cases if case.result == "ok"}


class ModulesEnvironment(Environment[ModulesProblem, ModulesState]):
    """A part for each agent, or all for one; `metrics` says what is measured."""

    turns = 1
    relied_on = LOWER

    def __init__(self, settings: ModulesSettings, executor: Callable[[], Executor]) -> None:
        """Make the environment; the sandbox is started by the first step.

        Args:
            settings: the ``environment`` section.
            executor: makes the sandbox.
        """
        self._single = settings.team == "single"
        self._reward = make_reward(settings.reward)
        self.reward_bounds = self._reward.bounds
        self._make_executor = executor
        self._executor: Executor | None = None

    @property
    def paid_by(self) -> object:
        """The reward of the settings."""
        return self._reward

    def agents(self, problem: ModulesProblem) -> tuple[str, ...]:
        """Return an agent for each part, with its name, or ``("single",)``."""
        return (SINGLE,) if self._single else problem.parts

    def start(self, problem: ModulesProblem, seed: int = 0) -> ModulesState:
        """Return the state before the only turn; nothing in this environment is random."""
        return ModulesState(problem)

    def observe(self, state: ModulesState, agent: int) -> str:
        """Return what the agent is told of the program."""
        return state.problem.observations[self.agents(state.problem)[agent]]

    def step(
        self, states: Sequence[ModulesState], joint_actions: Sequence[Sequence[str]]
    ) -> list[Outcome[ModulesState]]:
        """Join, run and reward.

        ``details`` has ``status`` (of the program on the system tests), ``error`` (a line that may quote hidden tests:
        for people, never for agents), and of a team whose program fails a test ``caused_by``: the first part that does
        not define what it must, or an empty string.

        Raises:
            BadTests: the tests of a problem have no case that a program could fail; the message names the problem.
        """
        attempts = [self._attempt(state, actions) for state, actions in zip(states, joint_actions, strict=True)]
        self._run([(attempt, *item) for attempt in attempts for item in _first_programs(attempt)])
        self._run([(attempt, *item) for attempt in attempts for item in _ablations(attempt)])
        return [self._outcome(attempt) for attempt in attempts]

    def stub(self, state: ModulesState, agent: int) -> str:
        """Return a part that can be called and returns None."""
        parts = state.problem.parts
        stubs = {part: stub(state.problem, part) for part in parts}
        return single_text(state.problem, stubs) if self._single else stubs[parts[agent]]

    def divided(self, problem: ModulesProblem) -> bool:
        """Return True for a team: each agent is told its own part."""
        return len(problem.parts) > 1 and not self._single

    def right_part(self, state: ModulesState, agent: int) -> str | None:
        """Return the part of the first known solution, if there is one."""
        if not state.problem.references:
            return None
        known = state.problem.references[0]
        return single_text(state.problem, known) if self._single else known[state.problem.parts[agent]]

    def exhibit(self, state: ModulesState, actions: Sequence[str]) -> Exhibit:
        """Return the parts and, if they led to this state, the result of each system test: for people only."""
        sources = self._sources(state.problem, actions)
        cases = state.verdict.cases if state.verdict is not None and state.actions == tuple(actions) else ()
        checks = tuple(Check(case.source, case.result == "ok", _one_line(case.message)) for case in cases)
        return Exhibit(single_text(state.problem, sources), "python", checks)

    def close(self) -> None:
        """End the sandbox's processes; a later step starts new ones."""
        if self._executor is not None:
            self._executor.close()
            self._executor = None

    def _sources(self, problem: ModulesProblem, actions: Sequence[str]) -> dict[str, str]:
        if self._single:
            return sources_of(problem, actions[0])
        return {part: unfenced(text) for part, text in zip(problem.parts, actions, strict=True)}

    def _attempt(self, state: ModulesState, actions: Sequence[str]) -> _Attempt:
        problem = state.problem
        if len(actions) != len(self.agents(problem)):
            raise ValueError(f"got {len(actions)} actions for the {len(self.agents(problem))} agents of {problem.id}")
        return _Attempt(problem, tuple(actions), self._sources(problem, actions))

    def _run(self, wanted: Sequence[tuple[_Attempt, tuple[str, str], Job]]) -> None:
        """Run jobs and keep their verdicts; the executor runs equal jobs once."""
        if not wanted:
            return
        if self._executor is None:
            self._executor = self._make_executor()
        verdicts = self._executor.run([job for _, _, job in wanted])
        for (attempt, key, _), verdict in zip(wanted, verdicts, strict=True):
            attempt.verdicts[key].append(verdict)

    def _outcome(self, attempt: _Attempt) -> Outcome[ModulesState]:
        system = next(iter(attempt.verdicts.get(("system", ""), ())), None)
        state = ModulesState(attempt.problem, attempt.actions, system)
        if attempt.failure is not None:
            details = {"status": Status.INFRA_ERROR.value, "error": _one_line(attempt.failure)}
            return Outcome(None, {}, {}, state, done=True, details=details)
        if system is None:  # a typed problem has no tests
            return Outcome(None, {}, {}, state, done=True, details={"status": "untested"})
        facts = attempt.facts()
        terms = self._reward.terms(facts)
        details = {"status": system.status.value}
        if system.error:
            details["error"] = _one_line(system.error)
        if not self._single and facts.system < 1.0:
            broken = (part for part in attempt.problem.parts[:-1] if not facts.forms[part].defines)
            details["caused_by"] = next(broken, "")
        return Outcome(float(sum(terms.values())), terms, _metrics(attempt, facts), state, done=True, details=details)


def stub(problem: ModulesProblem, part: str) -> str:
    """Return a part that does nothing: what it must define can be called and returns None."""
    return "\n".join(f"def {name}(*args, **kwargs):\n    return None\n" for name in problem.defines[part])


def _job(problem: ModulesProblem, sources: Mapping[str, str], part: str = "") -> Job:
    """Return the job of testing some parts: the whole program, or one part among the others."""
    code = program(problem, sources, part or problem.parts[-1])
    tests = problem.unit_tests[part] if part else problem.system_tests
    return Job(problem.id, code, tests, problem.entry_point)


def _first_programs(attempt: _Attempt) -> Iterator[tuple[tuple[str, str], Job]]:
    """Yield the joined program, and each part among the right parts that it builds on."""
    problem, sources = attempt.problem, attempt.sources
    if not problem.system_tests:
        return
    yield ("system", ""), _job(problem, sources)
    for part in problem.parts:
        for known in problem.references:
            among = {**{name: known[name] for name in below(problem, part)}, part: sources[part]}
            yield ("unit", part), _job(problem, among, part)


def _ablations(attempt: _Attempt) -> Iterator[tuple[tuple[str, str], Job]]:
    """Yield the program without each of its parts, if it passes any system test."""
    if attempt.failure is not None or not attempt.passed("system"):
        return
    problem = attempt.problem
    for part in problem.parts:
        # What is missing may be filled in only where it is missing, so an incomplete part of a class is taken out.
        whole = problem.layout != "class" or form(problem, part, attempt.sources[part]).defines
        yield ("without", part), _job(problem, {**attempt.sources, part: stub(problem, part) if whole else ""})
        if problem.layout == "class" and problem.references:
            yield ("expected", part), _job(problem, {**problem.references[0], part: stub(problem, part)})


def _metrics(attempt: _Attempt, facts: Facts) -> dict[str, float]:
    count = len(facts.units)
    needed = {part: float(attempt.passed("without", part) < facts.system) for part in facts.units}
    return {
        "system_passed": facts.system,
        "system_right": float(facts.system >= 1.0),
        "units_passed": facts.unit,
        "units_right": sum(share >= 1.0 for share in facts.units.values()) / count,
        "parts_needed": sum(needed.values()) / count,
        "parts_defined": facts.defined,
        "parts_parse": sum(found.parses for found in facts.forms.values()) / count,
        **{f"unit_{part}": share for part, share in facts.units.items()},
        **{f"needed_{part}": value for part, value in needed.items()},
    }


def _one_line(text: str) -> str:
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= _MAX_QUOTE else line[: _MAX_QUOTE - 3] + "..."
