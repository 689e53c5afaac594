"""The environment: every agent writes one part of a program; parts and program are tested.

All programs of a call of `ModulesEnvironment.step` go to the sandbox in two batches: first each joined program with the
system tests and each part, among right parts, with its own; then the joined programs that pass some system test, with a
stub in place of each part.  Programs run only in the sandbox, and all tests are hidden: nothing that an agent sees
depends on them.  A failure of the sandbox gives no reward instead of a bad one.

In an orchestrated team (`hand_out`) the first turn is the lead's.  Its program has no part yet, so nothing is run, and
the turn earns 0; what the workers earn in the second turn is what the hand-out has led to.  If no file is handed out,
the episode ends with the outcome of a program without any part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline_lib.environment_api.environment import Exhibit, Outcome
from pipeline_lib.environment_api.reward import total
from pipeline_lib.environment_kit.programs import (
    Attempt,
    ProgramEnvironment,
    Run,
    checks_of,
    failed,
    one_line,
    untested,
)
from pipeline_lib.environments.modules.generated import EARLY, LOWER
from pipeline_lib.environments.modules.hand_out import (
    LEAD,
    WORKERS,
    HandOut,
    descriptions,
    hand_out_text,
    led,
    read_hand_out,
    worked,
)
from pipeline_lib.environments.modules.problem import SINGLE, ModulesProblem
from pipeline_lib.environments.modules.program import (
    below,
    form,
    idle,
    join_single,
    program,
    single_text,
    sources_of,
    split_single,
    unfenced,
)
from pipeline_lib.environments.modules.rewards import Facts, make_reward
from pipeline_lib.sandbox import Executor, Job, Verdict

if TYPE_CHECKING:
    from pipeline_lib.environments.modules.settings import ModulesSettings

#: Longest text quoted from a test or an error, in characters.
_MAX_QUOTE = 200


@dataclass(frozen=True, slots=True)
class ModulesState:
    """The state of an episode."""

    problem: ModulesProblem  #: the program to be written
    actions: tuple[str, ...] = ()  #: after a turn, what was written in it
    verdict: Verdict | None = None  #: after the last turn, that of the system tests
    hand_out: HandOut | None = None  #: after the first turn of an orchestrated team


@dataclass(slots=True)
class ModulesAttempt(Attempt):
    """One joint action before it has an outcome.

    ``verdicts`` are by kind, part and number of the known solution: ``system`` of the program, ``unit`` of a part among
    the right parts of each known solution, ``without`` of the program with stubs in place of the part, ``expected`` of
    the known solution of a class with a stub in place of the part.
    """

    problem: ModulesProblem
    sources: Mapping[str, str]
    hand_out: HandOut | None = None
    waiting: bool = False  #: the files are handed out and not yet written

    def best(self, kind: str, part: str = "") -> float:
        """Return the share of cases passed, with the known solution with which most pass; 0 if nothing was run."""
        return max((self.passed(key) for key in self.verdicts if key[:2] == (kind, part)), default=0.0)

    def facts(self) -> Facts:
        forms = {part: form(self.problem, part, source) for part, source in self.sources.items()}
        return Facts(forms, {part: self.best("unit", part) for part in self.sources}, self._system())

    def _system(self) -> float:
        """Return the share of system tests passed; of a class, without those that one part passes for another.

        Methods may change others when they are called.  That shows in the tests of a part's own methods, if some pass
        with a stub in its place that do not in the known solution.  Then no test that needs this part counts.
        """
        if not self.best("system") or self.problem.layout != "class":
            return self.best("system")
        passing, counted = self._held("system"), self._held("system")
        for part in self.problem.parts:
            needing = passing - self._held("expected", part)
            tests = {case.source for verdict in self._of("unit", part) for case in verdict.cases}
            if needing & tests & self._held("without", part):
                counted -= needing
        return len(counted) / self.verdicts["system", "", 0].total

    def _held(self, kind: str, part: str = "") -> set[str]:
        return {case.source for verdict in self._of(kind, part) for case in verdict.cases if case.result == "ok"}

    def _of(self, kind: str, part: str) -> list[Verdict]:
        return [verdict for key, verdict in self.verdicts.items() if key[:2] == (kind, part)]


class ModulesEnvironment(ProgramEnvironment[ModulesProblem, ModulesState, ModulesAttempt]):
    """A part for each agent, all for one, or what a lead hands out; `metrics` says what is measured."""

    def __init__(self, settings: ModulesSettings, executor: Callable[[], Executor]) -> None:
        super().__init__(executor)
        self._single, self._orchestrated = settings.team == "single", settings.team == "orchestrated"
        self._reward = make_reward(settings.reward)
        self.turns = 2 if self._orchestrated else 1
        self.relied_on = () if self._orchestrated else LOWER  # which worker writes what differs
        low, high = self._reward.bounds
        self.reward_bounds = (min(low, 0.0), max(high, 0.0)) if self._orchestrated else (low, high)

    @property
    def episode_bounds(self) -> tuple[float, float]:
        """The bounds of the reward, which is earned once."""
        return self._reward.bounds

    @property
    def paid_by(self) -> object:
        return self._reward

    def agents(self, problem: ModulesProblem) -> tuple[str, ...]:
        if self._orchestrated:
            return LEAD, *WORKERS[: len(problem.parts)]
        return (SINGLE,) if self._single else problem.parts

    def acting(self, state: ModulesState) -> Sequence[int] | None:
        if not self._orchestrated:
            return None
        if state.hand_out is None:
            return [0]
        workers = WORKERS[: len(state.problem.parts)]
        return [number for number, worker in enumerate(workers, 1) if state.hand_out.files(worker)]

    def start(self, problem: ModulesProblem, seed: int = 0) -> ModulesState:
        if self._orchestrated and problem.layout == "class":
            raise ValueError(f"{problem.id}: the methods of a class cannot be handed out; choose another team")
        return ModulesState(problem)

    def observe(self, state: ModulesState, agent: int) -> str:
        name = self.agents(state.problem)[agent]
        if self._orchestrated:
            return led(state.problem) if name == LEAD else worked(state.problem, name, state.hand_out)
        return state.problem.observations[name]

    def attempt(self, state: ModulesState, actions: tuple[str, ...]) -> ModulesAttempt:
        sources = self._sources(state, actions)
        if not self._orchestrated or state.hand_out is not None:
            return ModulesAttempt(actions, state.problem, sources, state.hand_out)
        hand_out = read_hand_out(actions[0], state.problem.parts)
        return ModulesAttempt(actions, state.problem, sources, hand_out, waiting=bool(hand_out.owners))

    def programs(self, attempts: Sequence[ModulesAttempt]) -> Iterator[Run]:
        yield from ((attempt.verdicts, *job) for attempt in attempts for job in _first_programs(attempt))

    def further_programs(self, attempts: Sequence[ModulesAttempt]) -> Iterator[Run]:
        yield from ((attempt.verdicts, *job) for attempt in attempts for job in _ablations(attempt))

    def stub(self, state: ModulesState, agent: int) -> str:
        stubs = {part: stub(state.problem, part) for part in state.problem.parts}
        return self._own(state, agent, stubs) if state.hand_out or not self._orchestrated else ""

    def divided(self, problem: ModulesProblem) -> bool:
        return len(problem.parts) > 1 and not self._single and not self._orchestrated

    def right_part(self, state: ModulesState, agent: int) -> str | None:
        problem = state.problem
        if not problem.references:
            return None
        if self._orchestrated and state.hand_out is None:
            return (
                hand_out_text(descriptions(problem.observations), dict.fromkeys(problem.parts, EARLY))
                if agent == 0
                else ""
            )
        return self._own(state, agent, problem.references[0])

    def _own(self, state: ModulesState, agent: int, sources: Mapping[str, str]) -> str:
        """Return the text in which an agent writes what is its own of some parts."""
        if state.hand_out is not None:
            return join_single({part: sources[part] for part in state.hand_out.files(WORKERS[agent - 1])})
        return single_text(state.problem, sources) if self._single else sources[state.problem.parts[agent]]

    def exhibit(self, state: ModulesState, actions: Sequence[str]) -> Exhibit:
        """Return the parts and, if they led to this state, the result of each system test: for people only."""
        verdict = state.verdict if state.actions == tuple(actions) else None
        if self._orchestrated and actions[0] and not any(actions[1:]):
            return Exhibit(actions[0], checks=checks_of(verdict, _MAX_QUOTE))
        sources = self._sources(state, actions)
        return Exhibit(single_text(state.problem, sources), "python", checks_of(verdict, _MAX_QUOTE))

    def _sources(self, state: ModulesState, actions: Sequence[str]) -> dict[str, str]:
        problem = state.problem
        if self._orchestrated:
            owners = state.hand_out.owners if state.hand_out else {}
            written = {
                name: split_single(text, problem.parts) for name, text in zip(WORKERS, actions[1:], strict=False)
            }
            return {part: written[owners[part]][part] if part in owners else "" for part in problem.parts}
        if self._single:
            return sources_of(problem, actions[0])
        return {part: unfenced(text) for part, text in zip(problem.parts, actions, strict=True)}

    def outcome(self, state: ModulesState, attempt: ModulesAttempt) -> Outcome[ModulesState]:
        """Return reward and metrics.

        ``details`` has ``status`` (of the program on the system tests), ``error`` (a line that may quote hidden tests:
        for people, never for agents), and of a team whose program fails a test ``caused_by``: the first part that does
        not define what it must, or an empty string.
        """
        system = attempt.verdicts.get(("system", "", 0))
        state = ModulesState(attempt.problem, attempt.actions, system, attempt.hand_out)
        if attempt.waiting:
            return Outcome(0.0, {}, {}, state, done=False)
        if attempt.failure is not None:
            return failed(state, one_line(attempt.failure, _MAX_QUOTE))
        if system is None:  # a typed problem has no tests
            return untested(state)
        facts = attempt.facts()
        terms = self._reward.terms(facts)
        details = {"status": system.status.value}
        if system.error:
            details["error"] = one_line(system.error, _MAX_QUOTE)
        if not self._single and not self._orchestrated and facts.system < 1.0:
            broken = (part for part in attempt.problem.parts[:-1] if not facts.forms[part].defines)
            details["caused_by"] = next(broken, "")
        own = {} if self._single or self._orchestrated else self._reward.of_parts(facts)
        return Outcome(total(terms), terms, _metrics(attempt, facts), state, True, details, own)


def stub(problem: ModulesProblem, part: str) -> str:
    """Return a part that does nothing: what it must define can be called and returns None."""
    return "\n".join(f"def {name}(*args, **kwargs):\n    return None\n" for name in problem.defines[part])


def _job(problem: ModulesProblem, sources: Mapping[str, str], part: str = "") -> Job:
    """Return the job of testing some parts: the whole program, or one part among the others."""
    code = program(problem, sources, part or problem.parts[-1])
    tests = problem.unit_tests[part] if part else problem.system_tests
    return Job(problem.id, code, tests, problem.entry_point)


def _first_programs(attempt: ModulesAttempt) -> Iterator[tuple[tuple[str, str, int], Job]]:
    """Yield the joined program, and each part among the right parts that it builds on."""
    problem, sources = attempt.problem, attempt.sources
    if attempt.waiting or not problem.system_tests:
        return
    yield ("system", "", 0), _job(problem, sources)
    for part in problem.parts:
        for number, reference in enumerate(problem.references):
            among = {**{name: reference[name] for name in below(problem, part)}, part: sources[part]}
            yield ("unit", part, number), _job(problem, among, part)


def _ablations(attempt: ModulesAttempt) -> Iterator[tuple[tuple[str, str, int], Job]]:
    """Yield the program without each of its parts, if it passes any system test."""
    if attempt.failure is not None or not attempt.best("system"):
        return
    problem, sources = attempt.problem, attempt.sources
    for part, methods in problem.defines.items():
        if problem.layout == "class":
            # What is missing may be filled in only where it is missing, so an incomplete part is also taken out.
            nothing = [idle(sources[part], methods)]
            nothing += [] if form(problem, part, sources[part]).defines else [""]
            for reference in problem.references[:1]:
                yield ("expected", part, 0), _job(problem, {**reference, part: idle(reference[part], methods)})
        else:
            nothing = [stub(problem, part)]
        for number, text in enumerate(nothing):
            yield ("without", part, number), _job(problem, {**sources, part: text})


def _metrics(attempt: ModulesAttempt, facts: Facts) -> dict[str, float]:
    count = len(facts.units)
    needed = {part: float(attempt.best("without", part) < facts.system) for part in facts.units}
    return {
        "system_passed": facts.system,
        "system_right": float(facts.system >= 1.0),
        "units_passed": facts.unit,
        "units_right": sum(share >= 1.0 for share in facts.units.values()) / count,
        "parts_needed": sum(needed.values()) / count,
        "parts_defined": facts.defined,
        "parts_parse": sum(part_form.parses for part_form in facts.forms.values()) / count,
        **_handed_out(attempt),
        **{f"unit_{part}": share for part, share in facts.units.items()},
        **{f"needed_{part}": value for part, value in needed.items()},
    }


def _handed_out(attempt: ModulesAttempt) -> dict[str, float]:
    if attempt.hand_out is None:
        return {}
    owners, count = attempt.hand_out.owners, len(attempt.problem.parts)
    return {"parts_handed_out": len(owners) / count, "workers_used": len({*owners.values()}) / count}
