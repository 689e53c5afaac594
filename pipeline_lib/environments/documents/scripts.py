"""What agents who know how would say about a generated world; demonstrations and the audit use it."""

from __future__ import annotations

import re
from collections.abc import Collection, Set

from pipeline_lib.environment_kit.dialogue import words_of
from pipeline_lib.environments.documents.problem import DocumentsProblem
from pipeline_lib.environments.documents.reading import told
from pipeline_lib.environments.documents.runtime import DocumentsState


def right_answer(problem: DocumentsProblem) -> str:
    """Return the right answer with its whole support."""
    return "; ".join([*(problem.facts[number].label for number in problem.support), f"answer {problem.answer}"])


def question(problem: DocumentsProblem, read: Set[int], whole: bool) -> str:
    """Return what an asker who has ``read`` these facts asks: the rest of the question, or its next hop only."""
    hops = hops_read(problem, read)
    who = problem.facts[problem.support[hops - 1]].label.split()[2] if hops else problem.path[0]
    relations = problem.path[1 + hops :]
    return f"{' '.join([who, *relations[: None if whole else 1]])}?"


def hops_read(problem: DocumentsProblem, read: Set[int]) -> int:
    """Return how many facts from the beginning of the support are among those that were ``read``."""
    return next((hop for hop, number in enumerate(problem.support) if number not in read), len(problem.support))


def looks_up(problem: DocumentsProblem, own: Collection[int], said: str, leads: Collection[int] = ()) -> list[str]:
    """Return the titles of the ``own`` facts that a text tells, or that lead to it, in the order of the support."""
    needed = {*own} & {*told(problem, said), *leads}
    ordered = [*(number for number in problem.support if number in needed), *sorted(needed - {*problem.support})]
    return list(dict.fromkeys(problem.facts[number].title for number in ordered))


def asker_says(state: DocumentsState, whole: bool) -> str:
    """Return what the asker says: the answer, nothing while somebody may go on with its question, or a question."""
    problem = state.problem
    if hops_read(problem, state.read) == len(problem.support):
        return right_answer(problem)
    waits = state.turns and ("?" in state.turns[-1][0] or (whole and told(problem, "; ".join(state.turns[-1][1:]))))
    return "" if waits else question(problem, state.read, whole)


def holder_says(state: DocumentsState, agent: int) -> str:
    """Return the facts with which an agent can go on from what was asked last and told since, if it has any."""
    problem, keys = state.problem, state.problem.keys()
    asked = [words_of(found) for messages in state.turns for found in re.findall(r"[^;?]+(?=\?)", messages[0])]
    known = {number for messages in state.turns for text in messages for number in told(problem, text)}
    who, *relations = (asked[-1] if asked else "").split() or [""]
    said = []
    for relation in relations:
        number = keys.get((who, relation), -1)
        if number in problem.held(agent) and number not in known:
            said.append(problem.facts[number].label)
        elif number not in known:
            break
        who = problem.facts[number].label.split()[2]
    return "; ".join(said)
