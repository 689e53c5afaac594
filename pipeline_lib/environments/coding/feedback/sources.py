"""The sources of feedback that the settings name, as one: the jobs that they need, and the notes that they give.

What a critic writes is not known here: environments do not sample (`CodingEnvironment.criticised`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pipeline_lib.environment_api.environment import Outcome
from pipeline_lib.environment_kit.served_model import Answer
from pipeline_lib.environments.coding.feedback import visible_tests
from pipeline_lib.environments.coding.feedback.expert import Edits, make_expert, notes_of, question
from pipeline_lib.environments.coding.feedback.note import Note
from pipeline_lib.environments.coding.feedback.static_analysis import PYFLAKES
from pipeline_lib.environments.coding.feedback.type_checker import MYPY
from pipeline_lib.sandbox import Job, Verdict

if TYPE_CHECKING:
    from pipeline_lib.environments.coding.problems.problem import CodingProblem
    from pipeline_lib.environments.coding.program import Program
    from pipeline_lib.environments.coding.settings import CodingEnvironment

#: Tools that read programs without running them, by source.
ANALYSES = {one.source: one for one in (PYFLAKES, MYPY)}

#: The outcome of a turn; its state has ``turns``.
_Outcome = Outcome[Any]


class Feedback:
    """What agents are told of a turn in the next one; with one turn, nothing."""

    def __init__(self, settings: CodingEnvironment) -> None:
        """Make the sources; the expert is not asked yet.

        Raises:
            ValueError: the environment variable that should hold the expert's key is not set.
        """
        self._sources = settings.feedback if settings.turns > 1 else ()
        self._analyses = [ANALYSES[source] for source in self._sources if source in ANALYSES]
        self._expert = make_expert(settings.expert) if "expert" in self._sources and settings.expert else None

    def jobs(self, problem: CodingProblem, program: Program) -> Iterator[tuple[str, Job]]:
        """Yield the jobs for the sandbox that the sources need, by kind: ``visible`` or the source's name."""
        if not problem.hidden_tests:  # the episode ends without a verdict
            return
        if "tests" in self._sources and program.main.defined and problem.visible_tests:
            # A separate job, because a program that has seen hidden inputs could print them where agents read them.
            tests, prelude = problem.visible_tests, problem.prelude
            yield "visible", Job(problem.id, program.code, tests, problem.entry_point, prelude, shown=True)
        for analysis in self._analyses:
            yield analysis.source, analysis.job(problem.id, program, problem.prelude)

    def failure(self, verdicts: Mapping[str, Verdict]) -> str:
        """Return why a source could not work, whatever the program; empty if all could."""
        failures = (one.failure(verdicts[one.source]) for one in self._analyses if one.source in verdicts)
        return next((failure for failure in failures if failure), "")

    def notes(self, agent: int, program: Program, verdicts: Mapping[str, Verdict]) -> tuple[Note, ...]:
        """Return the notes for agent number ``agent``, without those of expert and critic; no line is said twice."""
        found: list[Note] = []
        for source in self._sources:
            if source == "tests":
                found += visible_tests.notes_for(program.roles[agent], program, verdicts.get("visible"))
            elif source in verdicts:
                found += ANALYSES[source].notes_for(agent, program, verdicts[source])
        return tuple({note.text: note for note in reversed(found)}.values())[::-1]

    def with_answers(self, outcomes: Sequence[_Outcome], observe: Callable[[Any, int], str]) -> list[_Outcome]:
        """Return the outcomes of a turn with the notes of the expert, if there is one, in episodes that go on.

        Where it gives no usable answer for one of the agents, there is no reward, and the episode ends.

        Args:
            outcomes: with the notes of all other sources.
            observe: returns what an agent is shown in a state.
        """
        if self._expert is None:
            return list(outcomes)
        questions = [
            question(observe(outcome.state, agent), action)
            for outcome in outcomes
            if not outcome.done
            for agent, action in enumerate(outcome.state.turns[-1].actions)
        ]
        answers = iter(self._expert.ask(questions))
        told = [[] if o.done else [next(answers) for _ in o.state.turns[-1].actions] for o in outcomes]
        return [_with(o, own, self._expert.costs(own)) for o, own in zip(outcomes, told, strict=True)]

    def close(self) -> None:
        """Stop waiting for the expert."""
        if self._expert is not None:
            self._expert.close()


def _with(outcome: _Outcome, answers: Sequence[Answer[Edits]], costs: Mapping[str, float]) -> _Outcome:
    """Return an outcome with the answers for its agents, or without reward if one of them failed."""
    if failed := [answer.error for answer in answers if answer.value is None]:
        details = {"status": "expert_failed", "error": " ".join(failed[0].split()), "costs": costs}
        return Outcome(None, {}, {}, outcome.state, done=True, details=details)
    state = outcome.state
    if answers:
        *before, last = state.turns
        notes = tuple((*own, *notes_of(answer.value or [])) for own, answer in zip(last.notes, answers, strict=True))
        state = replace(state, turns=(*before, replace(last, notes=notes)))
    return replace(outcome, state=state, details={**outcome.details, "costs": costs})
