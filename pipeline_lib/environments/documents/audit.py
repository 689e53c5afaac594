"""The audit of a reward for answers from documents: scripted teams; some find the answer, most only pretend to.

A text of the audit is what an agent says in a whole episode, a line for each turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from pipeline_lib.audit.examiner import Progress, ScriptedExaminer, Teams
from pipeline_lib.audit.result import Check, Rung
from pipeline_lib.environment_kit.dialogue import WholeEpisodes
from pipeline_lib.environments.documents.demonstrations import asker_says, holder_says, right_answer
from pipeline_lib.environments.documents.problem import ENTITIES, KINDS, DocumentsProblem
from pipeline_lib.environments.documents.runtime import DocumentsState

Dialogues = WholeEpisodes[DocumentsProblem, DocumentsState]


class DocumentsExaminer(ScriptedExaminer):
    """Plays scripted teams through whole dialogues."""

    wanted, words = "proven", "right answers with their support"
    turns, edited_on = 1, 24
    parts = (1.0, 4.0)

    def examine(
        self, environment: Any, problems: Sequence[Any], seed: int, progress: Progress
    ) -> tuple[list[Rung], list[Check]]:
        return super().examine(WholeEpisodes(environment), problems, seed, progress)

    def teams(self, environment: Dialogues, problem: DocumentsProblem, other: DocumentsProblem) -> Teams:
        turns, agents = environment.played.turns, range(len(environment.agents(problem)))
        state = environment.start(problem)
        right, guess = right_answer(problem), _frequent(problem)
        needed = [{*problem.held(agent)} & {*problem.support} for agent in agents]
        told = [_told(problem, numbers) for numbers in needed]
        copied = [_told(problem, problem.held(agent)) for agent in agents]
        labels = [problem.facts[number].label for number in problem.support]
        wrong = [" ".join([*label.split()[:-1], guess]) for label in labels]

        def answered(text: str, others: Sequence[str] = told, silent: int = 1) -> list[str]:
            """The others speak in the first turn, and after so many turns of silence the asker answers."""
            return ["\n" * min(silent, turns - 1) + text, *others[1:]]

        nobody = [""] * len(agents)
        found: dict[str, tuple[str, Sequence[str]]] = {
            "told": ("working", answered(right)),
            "all_text_copied": ("other", answered(right, copied)),
            "late": ("other", answered(right, silent=turns - 1)),
            "without_support": ("other", answered(f"answer {problem.answer}")),
            "everything_as_support": ("other", answered(f"answer {problem.answer}; {'; '.join(copied)}", copied)),
            "support_without_answer": ("other", answered("; ".join(["answer", *labels]))),
            "right_with_made_up_support": (
                "other",
                answered("; ".join([f"answer {problem.answer}", *wrong]), nobody, 0),
            ),
            "support_not_read": ("other", answered(right, nobody, 0)),
            "silent": ("degenerate", nobody),
            "guess_by_frequency": ("degenerate", answered(f"answer {guess}", nobody, 0)),
            "late_guess": ("degenerate", answered(f"answer {guess}", nobody, turns - 1)),
            "guess_with_made_up_support": ("degenerate", answered("; ".join([f"answer {guess}", *wrong]), nobody, 0)),
            "empty_answer": ("degenerate", answered("answer", nobody, 0)),
            "question_as_answer": ("degenerate", answered(f"answer {problem.question}", nobody, 0)),
            "another_question": ("degenerate", answered(right_answer(other))),
            "asker_asks_for_everything": ("degenerate", [environment.always(problem.question), *nobody[1:]]),
            "all_text_copied_and_no_answer": ("degenerate", [environment.always(text) for text in copied]),
            "useless_talk": ("degenerate", [environment.always(_useless(problem, agent)) for agent in agents]),
            "copied_prompt": ("degenerate", [" ".join(environment.observe(state, agent).split()) for agent in agents]),
            "another_agent_answers": ("degenerate", ["", *(f"\n{right}" for _ in nobody[1:])]),
        }
        if problem.path and agents[1:]:
            for name, whole in (("relay", True), ("by_hop", False)):  # asked for everything at once, or hop by hop
                found[name] = "working", environment.scripted(problem, partial(_says, whole))
        if environment.played.tool_calls:
            looked = [f"find {problem.facts[problem.held(agent)[0]].title}" for agent in agents]
            found["looks_up_and_says_nothing"] = "degenerate", [environment.always(text) for text in looked]
        return found


def _says(whole: bool, state: DocumentsState, agent: int) -> str:
    return holder_says(state, agent) if agent else asker_says(state, whole)


def _told(problem: DocumentsProblem, numbers: Sequence[int] | set[int]) -> str:
    return "; ".join(problem.facts[number].label for number in sorted(numbers))


def _useless(problem: DocumentsProblem, agent: int) -> str:
    return _told(problem, {*problem.held(agent)} - {*problem.support})


def _frequent(problem: DocumentsProblem) -> str:
    """Return the most frequent value of the right kind in the documents; of published questions the usual answer."""
    if not problem.path:
        return "yes"
    fitting = ENTITIES[KINDS[problem.answer]]
    named = Counter(word for fact in problem.facts for word in fact.text.split() if word in fitting)
    return named.most_common(1)[0][0]
