"""HotpotQA and 2WikiMultihopQA with their published fields, from the hub or a file; their documents are dealt out.

Both have ``question``, ``answer``, ``context`` (titles with their sentences) and ``supporting_facts`` (titles with
numbers of sentences, from 0); a file may have them as pairs, as first published, as columns, as on the hub, or as JSON
in a text.  No agent gets all documents that a question needs, so questions that need only one are left out.  So are
those whose titles cannot be told apart by their words or would not be read as titles, or whose answer has no words.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from pipeline_lib.environment_kit.dialogue import words_of
from pipeline_lib.environments.documents.problem import DocumentsProblem, Fact
from pipeline_lib.environments.documents.reading import VERBS, normalised_answer
from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.problems.rows import Fields, Row, published_problems, text_field
from pipeline_lib.storage import digest

if TYPE_CHECKING:
    from pipeline_lib.environments.documents.settings import PublishedDocuments

#: Hub id and configuration of each dataset as published.
HUB = {"hotpotqa": ("hotpotqa/hotpot_qa", "distractor"), "2wikimultihop": ("xanhho/2WikiMultihopQA", None)}


def read_dataset(settings: PublishedDocuments) -> list[tuple[DocumentsProblem, Row]]:
    """Return the problems of a dataset with their rows, at most as many as the settings say.

    Raises:
        ProblemsError: as `published_problems`; or no question can be used.
    """

    def name_of(number: int, row: Fields) -> str:
        return f"{settings.kind}/{row.get('_id') or row.get('id') or number}"

    found = published_problems(settings, HUB[settings.kind], name_of, lambda name, row: _problem(name, row, settings))
    problems = list(islice(found, settings.most))
    if not problems:
        raise ProblemsError(
            f"{settings.source or HUB[settings.kind][0]}: none of its questions can be used (problems.documents "
            f"{settings.documents}; a question must need two documents that are there)"
        )
    return problems


def _problem(name: str, row: Fields, settings: PublishedDocuments) -> DocumentsProblem | None:
    """Return the problem of a row; None if it cannot be dealt out."""
    question, answer = text_field(row, "question"), text_field(row, "answer")
    documents = list(_pairs(row, "context", "sentences", list))
    if not all(isinstance(sentence, str) for _, sentences in documents for sentence in sentences):
        raise ProblemsError("the field context must hold texts as sentences")
    context = dict(documents)
    names = {words_of(title) for title in context} - {""}
    if len(names) < len(documents) or not normalised_answer(answer):
        return None  # its sentences have no names of their own, or saying nothing would be the right answer
    if any(";" in text for text in (answer, *context)) or any(name.split()[0] in VERBS for name in names):
        return None  # what an agent names so would be read as two statements, or as another one
    wanted = {(title, number) for title, number in _pairs(row, "supporting_facts", "sent_id", int)}
    wanted = {
        (title, number)
        for title, number in wanted
        if 0 <= number < len(context.get(title, ())) and words_of(context[title][number])
    }
    needed = [title for title in context if any(title == each for each, _ in wanted)]
    if not 2 <= len(needed) <= settings.documents:
        return None
    rng = random.Random(digest(["documents", settings.seed, name]))
    distractors = [title for title in context if title not in needed]
    titles = needed + rng.sample(distractors, min(len(distractors), settings.documents - len(needed)))
    rng.shuffle(needed)
    holders = {title: number % settings.agents for number, title in enumerate(needed, rng.randrange(settings.agents))}
    rng.shuffle(titles)
    for title in titles:
        fewest = min(range(settings.agents), key=list(holders.values()).count)
        holders.setdefault(title, fewest)
    facts: list[Fact] = []
    support: list[int] = []
    for title in titles:
        for number, sentence in enumerate(context[title]):
            if not words_of(sentence):
                continue  # who is silent would tell it
            if (title, number) in wanted:
                support.append(len(facts))
            facts.append(Fact(f"{title} {number + 1}", " ".join(sentence.split()), title, holders[title]))
    return DocumentsProblem(
        id=name,
        source=settings.kind,
        family=name,
        question=" ".join(question.split()),
        answer=answer,
        agents=settings.agents,
        facts=tuple(facts),
        support=tuple(support),
        plain=True,
    )


def _pairs(row: Fields, name: str, second: str, kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the pairs of a title and a value in a field, in any of its published forms.

    Raises:
        ProblemsError: the field is missing or has another form.
    """
    value: Any = row.get(name)
    try:
        value = json.loads(value) if isinstance(value, str) else value
        pairs = zip(value["title"], value[second], strict=True) if isinstance(value, dict) else iter(value)
        for title, each in pairs:
            if not (isinstance(title, str) and isinstance(each, kind)) or isinstance(each, bool):
                raise ValueError("a pair is of another type")
            yield title, each
    except (KeyError, TypeError, ValueError) as error:
        raise ProblemsError(
            f"the field {name} must hold titles, each with its {second}: a list of pairs, or an object with lists "
            f"'title' and '{second}' ({error})"
        ) from None
