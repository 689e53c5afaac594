"""Environments whose agents write programs: they are run in the sandbox, and never anywhere else.

All programs of a call of `ProgramEnvironment.step` go to the sandbox in at most two batches.  A failure of the sandbox
gives no reward instead of a bad one.
"""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from pipeline_lib.environment_api.environment import Check, Environment, Outcome
from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.sandbox import BadTests, Executor, Job, Status, Verdict

#: Longest text quoted from a test, an error or a program, in characters; small models have short contexts.
MAX_QUOTE = 100

#: Problems of which `check_solutions` says why they cannot be used; all are named.
_EXPLAINED = 5

#: A job, and where its verdict is put: the dictionary and the key.
Run = tuple[dict[Any, Verdict], Any, Job]


class _HasProblem(Protocol):
    @property
    def problem(self) -> Any: ...


P = TypeVar("P")
S = TypeVar("S", bound=_HasProblem)
A = TypeVar("A", bound="Attempt")


def failure_of(verdicts: Mapping[Any, Verdict]) -> str | None:
    """Return the error of the sandbox if it failed on one of the programs, else None."""
    failed = (verdict for verdict in verdicts.values() if verdict.status is Status.INFRA_ERROR)
    return next((verdict.error or "the sandbox failed" for verdict in failed), None)


@dataclass(slots=True)
class Attempt:
    """One joint action while it is judged."""

    actions: tuple[str, ...]  #: a text per agent
    #: Those of its programs, by keys of the environment's choice.
    verdicts: dict[Any, Verdict] = field(default_factory=dict, kw_only=True)

    @property
    def failure(self) -> str | None:
        """Return the error of the sandbox if it failed, else None."""
        return failure_of(self.verdicts)

    def passed(self, key: Any) -> float:
        """Return the share of the tests that a program passed, in [0, 1]; 0 if it was not run."""
        return (self.verdicts[key].fraction or 0.0) if key in self.verdicts else 0.0


class ProgramEnvironment(Environment[P, S], Generic[P, S, A]):
    """An environment that judges joint actions by running programs."""

    def __init__(self, executor: Callable[[], Executor]) -> None:
        """Make the environment; the sandbox is started by the first program.

        Args:
            executor: makes the sandbox.
        """
        self._make_executor = executor
        self._executor: Executor | None = None

    @abstractmethod
    def attempt(self, state: S, actions: tuple[str, ...]) -> A:
        """Return a joint action as an attempt; there is an action for each agent."""

    @abstractmethod
    def programs(self, attempts: Sequence[A]) -> Iterable[Run]:
        """Return the programs of the first batch."""

    def further_programs(self, attempts: Sequence[A]) -> Iterable[Run]:
        """Return the programs that follow from the verdicts of the first batch."""
        return ()

    @abstractmethod
    def outcome(self, state: S, attempt: A) -> Outcome[S]:
        """Return the outcome of an attempt whose programs have run."""

    def step(self, states: Sequence[S], joint_actions: Sequence[Sequence[str]]) -> list[Outcome[S]]:
        """Run the programs of joint actions, and return their outcomes (`outcome`).

        Raises:
            BadTests: the tests of a problem have no case that a program could fail; the message names the problem.
        """
        attempts = []
        for state, actions in zip(states, joint_actions, strict=True):
            agents = len(self.agents(state.problem))
            if len(actions) != agents:
                raise ValueError(f"got {len(actions)} actions for the {agents} agents of {state.problem.id}")
            attempts.append(self.attempt(state, tuple(actions)))
        self._run(self.programs(attempts))
        self._run(self.further_programs(attempts))
        return [self.outcome(state, attempt) for state, attempt in zip(states, attempts, strict=True)]

    def close(self) -> None:
        """End the sandbox's processes; a later step starts new ones."""
        if self._executor is not None:
            self._executor.close()
            self._executor = None

    def _run(self, programs: Iterable[Run]) -> None:
        """Run programs and put each verdict where it belongs; the executor runs equal jobs once."""
        # What agents are shown comes first: whatever a program has left, it has not seen hidden inputs by then.
        wanted = sorted(programs, key=lambda run: not run[2].shown)
        if not wanted:
            return
        if self._executor is None:
            self._executor = self._make_executor()
        verdicts = self._executor.run([job for _, _, job in wanted])
        for (place, key, _), verdict in zip(wanted, verdicts, strict=True):
            place[key] = verdict


def failed(state: S, error: str) -> Outcome[S]:
    """Return the outcome without a reward of an episode that ends because the sandbox failed."""
    return Outcome(None, {}, {}, state, done=True, details={"status": Status.INFRA_ERROR.value, "error": error})


def untested(state: S) -> Outcome[S]:
    """Return the outcome without a reward of a problem without tests, such as one that a person typed."""
    return Outcome(None, {}, {}, state, done=True, details={"status": "untested"})


def checks_of(verdict: Verdict | None, longest: int = MAX_QUOTE) -> tuple[Check, ...]:
    """Return the cases of a verdict for display, with answers of at most ``longest`` characters."""
    cases = verdict.cases if verdict is not None else ()
    return tuple(
        Check(case.source or f"case {case.index}", case.result == "ok", one_line(case.message, longest))
        for case in cases
    )


def one_line(text: str, longest: int = MAX_QUOTE) -> str:
    """Return untrusted text as one line of printable characters, cut to ``longest``."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text[: 4 * longest]).split())
    return line if len(line) <= longest else line[: longest - 3] + "..."


def parsed(source: str) -> ast.Module | None:
    """Return the syntax tree of untrusted source; None if Python cannot parse it, or only at too great a depth."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def check_solutions(jobs: Mapping[str, Sequence[Job]], executor: Callable[[], Executor]) -> None:
    """Run the solutions that a dataset came with: a problem whose own solution fails is one that no team can solve.

    Such a problem has wrong tests, a wrong solution, or asks for more than the sandbox gives (a package, time).  It is
    not left out silently: which problems are used must not depend on the machine.

    Args:
        jobs: of each problem with a solution, by its id.
        executor: makes the sandbox; it is not called if there is nothing to run.

    Raises:
        ProblemsError: a solution fails, or the sandbox does; the message names the problems and how to go on.
    """
    if not jobs:
        return
    everything = [job for each in jobs.values() for job in each]
    refused: dict[int, str] = {}  # by place, the jobs whose tests cannot be used
    with executor() as sandbox:
        try:
            verdicts: list[Verdict | None] = [*sandbox.run(everything)]
        except BadTests:
            verdicts = [_verdict(sandbox, job, place, refused) for place, job in enumerate(everything)]
    if broken := [verdict for verdict in verdicts if verdict is not None and verdict.status is Status.INFRA_ERROR]:
        raise ProblemsError(f"the sandbox failed on the solution of {broken[0].id}: {broken[0].error}")
    failing: dict[str, str] = {}
    place = 0
    for problem, each in jobs.items():
        here = range(place, place := place + len(each))
        wrong = [refused[n] for n in here if n in refused]
        judged = [verdict for n in here if (verdict := verdicts[n]) is not None]
        if wrong or any(verdict.status is not Status.PASSED for verdict in judged):
            failing[problem] = wrong[0] if wrong else _reason(judged)
    if not failing:
        return
    reasons = "".join(f"\n  {problem}: {reason}" for problem, reason in list(failing.items())[:_EXPLAINED])
    more = f"\n  and {len(failing) - _EXPLAINED} more" if len(failing) > _EXPLAINED else ""
    raise ProblemsError(
        f"{len(failing)} of {len(jobs)} problems came with a solution that fails their own tests in this sandbox:"
        f"{reasons}{more}\n"
        "mend them in the source, give the sandbox what they need (sandbox.limits, sandbox.packages), or leave them "
        f"out: problems.leave_out: [{', '.join(failing)}]"
    )


def _verdict(sandbox: Executor, job: Job, place: int, refused: dict[int, str]) -> Verdict | None:
    try:
        (verdict,) = sandbox.run([job])
    except BadTests as error:
        refused[place] = str(error).partition(": ")[2]
        return None
    return verdict


def _reason(verdicts: Sequence[Verdict]) -> str:
    cases = [case for verdict in verdicts for case in verdict.cases]
    wrong = [case for case in cases if case.result != "ok"]
    worst = next(verdict for verdict in verdicts if verdict.status is not Status.PASSED)
    told = [worst.error, *(case.message or case.source for case in wrong), worst.status.value]
    said = next(text for text in told if text.strip()).strip().rpartition("\n")[2]
    return f"{len(wrong)} of {len(cases)} tests fail: {said}" if cases else said
