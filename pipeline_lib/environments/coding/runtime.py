"""The coding environment: a helper agent and a main agent write one function each, and the joined program is tested.

Only hidden tests give the reward; agents see only visible tests, which run in a process that never saw a hidden test.
The programs of the second batch (`ProgramEnvironment`) are those that pass some test and whose main function calls the
helper, with another helper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline_lib.environment_api.environment import Exhibit, Outcome, Part, ToolCall, ToolResult
from pipeline_lib.environment_api.reward import is_enough, total
from pipeline_lib.environment_kit.programs import (
    Attempt,
    ProgramEnvironment,
    Run,
    checks_of,
    failed,
    failure_of,
    one_line,
    untested,
)
from pipeline_lib.environments.coding.feedback import (
    INSTRUCTION,
    Feedback,
    Note,
    is_call,
    note_of,
    observation,
    result,
    visible_job,
    with_notes,
)
from pipeline_lib.environments.coding.fine_measures import (
    almost_right,
    contract,
    hardness_of_tests,
    mutants,
    noticed,
    passed_cases,
    weighted_share,
)
from pipeline_lib.environments.coding.problem import AGENTS, CodingProblem
from pipeline_lib.environments.coding.program import HELPER, Program, build_program
from pipeline_lib.environments.coding.rewards import Facts, make_reward
from pipeline_lib.environments.coding.schemes import convention, schemes
from pipeline_lib.environments.coding.settings import CodingSettings
from pipeline_lib.sandbox import Executor, Job, Verdict

#: The stubs that replace the helper in an ablation: one returns None, one agrees with everything.
ABLATIONS = ("ablated by None", "ablated by agreement")

_MUTANT = "mutant "


@dataclass(slots=True)
class CodingAttempt(Attempt):
    """One joint action before it has an outcome.

    ``verdicts`` are those of the program on hidden tests (``hidden``) and on visible ones (``visible``), of its static
    analysis (``analysis``), of a program that returns None (``none``), of the helper alone (``contract``), and of the
    program with its helper replaced: by a stub (one of `ABLATIONS` each), or by one of its mutants; if these were run.
    """

    problem: CodingProblem
    program: Program
    last: bool

    def job(self, code: str) -> Job:
        problem = self.problem
        return Job(problem.id, code, problem.hidden_tests, problem.entry_point, problem.prelude)


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn: every agent's text, the feedback to each agent, and the verdict on the hidden tests."""

    actions: tuple[str, ...]
    notes: tuple[tuple[Note, ...], ...]
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class CodingState:
    """The state of an episode: the problem, the turns that were played, and whether the next one is the last anyway."""

    problem: CodingProblem
    turns: tuple[Turn, ...] = ()
    ending: bool = False


class CodingEnvironment(ProgramEnvironment[CodingProblem, CodingState, CodingAttempt]):
    """Two functions by two agents (team ``pair``), or both by one (``single``), tested together.

    `metrics.METRICS` says what is measured; what only a finer reward needs is measured only for it.  A single agent has
    no partner to cooperate with: its ``cooperation`` is always 0.
    """

    retries = True

    def __init__(self, settings: CodingSettings, executor: Callable[[], Executor]) -> None:
        super().__init__(executor)
        self.turns = settings.turns
        self._agents = AGENTS[settings.team]
        self.relied_on = self._agents[:-1]
        self.has_critic = "critic" in settings.feedback and settings.turns > 1
        self._feedback = Feedback(settings)
        if settings.tools is not None:
            self.tool_calls, self.tool_tokens = settings.tools.calls, settings.tools.tokens
        self._all_turns = settings.history == "all"
        self._reward = make_reward(settings.reward, settings.team)
        self.reward_bounds = self._reward.bounds
        self._stop_at = settings.stop_at
        # Verdicts on almost right programs, by problem, if the reward weighs tests by how hard they are.
        self._ladder: dict[tuple[str, str], dict[str, Verdict]] = {}

    @property
    def judges_helper(self) -> bool:
        """Return whether the reward judges the helper itself, and not only what the team achieves."""
        return self._reward.needs_contract or self._reward.mutants > 0

    @property
    def paid_by(self) -> object:
        return self._reward

    def agents(self, problem: CodingProblem) -> tuple[str, ...]:
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
        """Return the agent's first observation, in later turns followed by its own code and the notes on it.

        With ``history: all`` these are of all turns, the oldest first; else of the last turn.
        """
        return "".join(part.text for part in self.parts(state, agent))

    def shortened(self, state: CodingState, agent: int, cut: int) -> str | None:
        if not self._all_turns or cut >= len(state.turns):
            return None
        return self.observe(replace(state, turns=state.turns[cut:]), agent)

    def parts(self, state: CodingState, agent: int) -> tuple[Part, ...]:
        """Return the parts of the agent's observation, with the source of feedback that each comes from."""
        first = state.problem.observations[self._agents[agent]]
        if self.tool_calls:
            first += INSTRUCTION
        if not state.turns:
            return (Part("task", first),)
        turns = state.turns if self._all_turns else state.turns[-1:]
        return observation(first, [(turn.actions[agent], turn.notes[agent]) for turn in turns])

    def use_tools(self, calls: Sequence[ToolCall[CodingState]]) -> list[ToolResult]:
        """Run the visible tests for the agents that call them, each on what the team has written at that time."""
        asked = [call for call in calls if is_call(call.text)]
        told = (result(call.agent, *found) for call, found in zip(asked, self.run_visible(asked), strict=True))
        return [next(told) if is_call(call.text) else ToolResult() for call in calls]

    def run_visible(self, calls: Sequence[ToolCall[CodingState]]) -> list[tuple[Program, Verdict | None]]:
        """Return the program that the texts of each call make, and the verdict on it, None if it cannot be run."""
        programs = [build_program(call.texts, call.state.problem.entry_point) for call in calls]
        verdicts: dict[int, Verdict] = {}
        self._run(
            (verdicts, number, visible_job(call.state.problem, program))
            for number, (call, program) in enumerate(zip(calls, programs, strict=True))
            if program.main.defined and call.state.problem.visible_tests
        )
        return [(program, verdicts.get(number)) for number, program in enumerate(programs)]

    def ending(self, state: CodingState) -> CodingState:
        return replace(state, ending=True)

    def criticised(self, state: CodingState, texts: Mapping[int, str]) -> CodingState:
        after: CodingState = with_notes(state, {agent: (note_of(text),) for agent, text in texts.items()})
        return after

    def step(self, states: Sequence[CodingState], joint_actions: Sequence[Sequence[str]]) -> list[Outcome[CodingState]]:
        """Join, run and reward; see the class for metrics, and `ProgramEnvironment.step`.

        ``details`` has ``status`` (of the program on the hidden tests; ``missing`` without an entry point;
        ``untested``, without reward, if the problem has no hidden tests), ``error`` (a line that may quote hidden
        tests: for people, never for agents), ``schemes``, ``convention`` and ``conflicts``.  If a test fails it also
        has ``caused_by`` (the helper, if the main function calls it and it did not define the function, else an empty
        string), and if visible tests were run ``visible``, the share of them that passed.  If an expert was asked,
        ``costs`` counts what that cost.  If the expert gave no usable answer, ``status`` is ``expert_failed``: there is
        no reward and no next turn, and ``error`` says why.
        """
        return self._feedback.with_answers(super().step(states, joint_actions), self.observe)

    def attempt(self, state: CodingState, actions: tuple[str, ...]) -> CodingAttempt:
        program = build_program(actions, state.problem.entry_point)
        return CodingAttempt(actions, state.problem, program, state.ending or len(state.turns) + 1 >= self.turns)

    def programs(self, attempts: Sequence[CodingAttempt]) -> Iterator[Run]:
        yield from self._ladders(attempts)
        for attempt in attempts:
            problem, program = attempt.problem, attempt.program
            if not problem.hidden_tests:
                continue
            jobs = {} if attempt.last else dict(self._feedback.jobs(problem, program))
            if self.for_choice and program.main.defined and problem.visible_tests:
                jobs["visible"] = visible_job(problem, program)
            written = len(program.roles) > 1 and program.roles[0].defined
            if self._reward.needs_contract and written and (tests := contract(problem)):
                jobs["contract"] = Job(problem.id, program.parts[0], tests, HELPER)
            if program.main.defined:
                jobs["hidden"] = attempt.job(program.code)
                if self._reward.needs_baseline:
                    nothing = f"def {problem.entry_point}(*args, **kwargs):\n    return None\n"
                    jobs["none"] = attempt.job(nothing)
            yield from ((attempt.verdicts, kind, job) for kind, job in jobs.items())

    def further_programs(self, attempts: Sequence[CodingAttempt]) -> Iterator[Run]:
        """Yield the programs that pass some test, with another helper: they show whether and how it matters."""
        for attempt in attempts:
            program = attempt.program
            if not program.ablated or attempt.failure is not None or attempt.passed("hidden") == 0:
                continue
            for kind, code in zip(ABLATIONS, program.ablated, strict=True):
                yield attempt.verdicts, kind, attempt.job(code)
            if self._reward.mutants:
                for number, source in enumerate(mutants(program.parts[0], self._reward.mutants)):
                    yield attempt.verdicts, f"{_MUTANT}{number}", attempt.job(program.with_helper(source))

    def stub(self, state: CodingState, agent: int) -> str:
        return f"def {self._function(state, agent)}(*args, **kwargs):\n    return None\n"

    def divided(self, problem: CodingProblem) -> bool:
        """Return True for generated problems; of a dataset's problem, every agent is told the whole task."""
        return problem.source == "generated" and len(self._agents) > 1

    def right_part(self, state: CodingState, agent: int) -> str | None:
        return state.problem.reference.get(self._function(state, agent))

    def _function(self, state: CodingState, agent: int) -> str:
        return HELPER if self._agents[agent] in self.relied_on else state.problem.entry_point

    def exhibit(self, state: CodingState, actions: Sequence[str]) -> Exhibit:
        """Return the joined program and, if it led to this state, the result of each hidden test: for people only."""
        program = build_program(tuple(actions), state.problem.entry_point)
        verdicts = [turn.verdict for turn in state.turns[-1:] if turn.actions == tuple(actions)]
        return Exhibit(program.code, "python", checks_of(verdicts[0] if verdicts else None))

    def close(self) -> None:
        self._feedback.close()
        super().close()

    def _ladders(self, attempts: Sequence[CodingAttempt]) -> Iterator[Run]:
        """Yield the jobs that show how hard the tests of each problem are, if they have not run yet."""
        if self._reward.hardness is None:
            return
        for attempt in attempts:
            problem = attempt.problem
            key = _key(problem)
            if problem.hidden_tests and (key not in self._ladder or failure_of(self._ladder[key]) is not None):
                verdicts = self._ladder[key] = {}
                for number, code in enumerate(almost_right(problem)):
                    yield verdicts, str(number), attempt.job(code)

    def outcome(self, state: CodingState, attempt: CodingAttempt) -> Outcome[CodingState]:
        program = attempt.program
        agents = range(len(program.roles))
        notes = tuple(() if attempt.last else self._feedback.notes(i, program, attempt.verdicts) for i in agents)
        turn = Turn(attempt.actions, notes, attempt.verdicts.get("hidden"))
        state = replace(state, turns=(*state.turns, turn))
        problem, ladder = attempt.problem, self._ladder.get(_key(attempt.problem), {})
        failure = attempt.failure or failure_of(ladder) or self._feedback.failure(attempt.verdicts)
        if failure:
            return failed(state, one_line(failure))
        if not problem.hidden_tests:  # a typed problem may have none
            return untested(state)
        facts = self._facts(attempt, list(ladder.values()))
        terms = self._reward.terms(facts)
        reward = total(terms)
        judged = len(program.roles) > 1 and self._reward.needs_contract
        own = dict(zip(self._agents, self._reward.of_agents(facts), strict=True)) if judged else {}
        return Outcome(
            reward=reward,
            terms=terms,
            metrics=self._metrics(attempt, facts),
            state=state,
            done=attempt.last or is_enough(reward, self.reward_bounds, self._stop_at),
            details=_details(attempt),
            agent_rewards=own,
        )

    def _facts(self, attempt: CodingAttempt, ladder: Sequence[Verdict]) -> Facts:
        """Return the facts that the reward depends on; ``ladder`` has the verdicts on almost right programs."""
        passed, verdicts = attempt.passed("hidden"), attempt.verdicts
        ablated = [attempt.passed(kind) for kind in ABLATIONS if kind in verdicts]
        adds = max(0.0, passed - max(ablated)) if ablated else 0.0
        weighted = killed = 0.0
        if self._reward.hardness is not None and "hidden" in verdicts:
            hardness = hardness_of_tests(ladder, verdicts["hidden"].total)
            weighted = weighted_share(passed_cases(verdicts["hidden"]), hardness, self._reward.hardness)
        if adds > 0 and self._reward.mutants:
            changed = [verdict for kind, verdict in verdicts.items() if kind.startswith(_MUTANT)]
            killed = noticed(verdicts["hidden"], changed)
        none, met = attempt.passed("none"), attempt.passed("contract")
        return Facts(attempt.program, passed, none, adds > 0, adds, weighted, met, killed)

    def _metrics(self, attempt: CodingAttempt, facts: Facts) -> dict[str, float]:
        program, reward = facts.program, self._reward
        measured: dict[str, float] = {
            "tests_passed": facts.passed,
            "all_passed": facts.passed >= 1.0,
            "structure": facts.structure,
            "syntax": program.parses,
            "cooperation": len(program.roles) > 1 and facts.needs_helper,
            "calls_helper": program.calls_helper,
            "ignores_helper": program.ignores_helper,
            "thin_wrapper": program.thin_wrapper,
        }
        if reward.hardness is not None:
            measured["tests_weighted"] = facts.passed_weighted
        if reward.needs_contract:
            measured["contract_met"] = facts.contract
        if reward.mutants:
            measured["mutants_noticed"] = facts.killed
        if reward.hardness is not None or reward.needs_contract or reward.mutants:
            measured |= {"helper_adds": facts.helper_adds, "programs": len(attempt.verdicts)}
        return {name: float(value) for name, value in measured.items()}


def _key(problem: CodingProblem) -> tuple[str, str]:
    return problem.id, problem.hidden_tests


def _details(attempt: CodingAttempt) -> dict[str, Any]:
    program, hidden = attempt.program, attempt.verdicts.get("hidden")
    details: dict[str, Any] = {"status": "missing" if hidden is None else hidden.status.value}
    if hidden is not None and hidden.error:
        details["error"] = one_line(hidden.error)
    if program.calls_helper:
        entry_point = attempt.problem.entry_point
        details["schemes"] = sorted(schemes(program.parts[-1], entry_point))
        details["convention"] = convention(program.parts[0])
    if len(program.roles) > 1 and attempt.passed("hidden") < 1.0:
        details["caused_by"] = AGENTS["pair"][0] if program.lacks_helper else ""
    if "visible" in attempt.verdicts:
        details["visible"] = attempt.passed("visible")
    if program.conflicts:
        details["conflicts"] = list(program.conflicts)
    return details
