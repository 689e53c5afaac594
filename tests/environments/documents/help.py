"""Generated questions, and the truth about them in plain Python."""

from functools import cache

from pipeline_lib.environments.documents.problem import DocumentsProblem, generate
from pipeline_lib.environments.documents.settings import GeneratedWorlds

SIZES = {"train": 120, "validation": 12, "test": 24}


@cache
def questions(agents: int = 3, hops: tuple[int, ...] = (1, 2, 3), facts: int = 2) -> dict[str, list[DocumentsProblem]]:
    return generate(GeneratedWorlds(agents=agents, hops=hops, facts=facts, sizes=SIZES))


def answers(statements: list[str], path: tuple[str, ...]) -> set[str]:
    """Return what statements of three words say about a question: every value that following its relations leads to."""
    reached = {path[0]}
    for relation in path[1:]:
        triples = [statement.split() for statement in statements]
        reached = {value for who, name, value in triples if who in reached and name == relation}
    return reached


def truth(problem: DocumentsProblem, statement: str, read: set[int]) -> str:
    """Return what a statement of three words is, from the sentences of all documents alone."""
    told = [fact.text for fact in problem.facts]
    if statement in told:
        return "supported" if told.index(statement) in read else "unread"
    who, relation, _ = statement.split()
    return "contradicted" if any(text.split()[:2] == [who, relation] for text in told) else "invented"
