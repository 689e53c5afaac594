"""Published texts: posts of TL;DR and abstracts of arXiv, from the hub or from a file with the published fields.

TL;DR (``trl-lib/tldr``) has ``prompt``, a post with its heading; arXiv (``OpenMLRL/arXiv_abstract``) has
``abstract_text``.  All published splits of a source are pooled, and the problems are split again.  Both
writers see the whole text, as published; their prompts say which part each of them writes.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

from pipeline_lib.environments.writing.problem import Limits, WritingProblem
from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.problems.rows import Fields, Row, published_problems, text_field
from pipeline_lib.storage import digest

if TYPE_CHECKING:
    from pipeline_lib.environments.writing.settings import PublishedTexts


#: Hub id, field and task of each dataset as published.
HUB = {
    "tldr": ("trl-lib/tldr", "prompt", "summary"),
    "arxiv": ("OpenMLRL/arXiv_abstract", "abstract_text", "introduction"),
}

#: Words of an abstract that is used, as published.
ABSTRACT_WORDS = (100, 300)

LIMITS = {
    "summary": Limits((8, 40), (20, 128), (1.6, 3.2)),
    "introduction": Limits((128, 256), (128, 256), (1.0, 1.6)),
}

_ALONE = "Write in full sentences and in your own words, say nothing that the {0} does not say, and add no heading."
_POST = "Two writers summarise this post without seeing each other's text. Yours is the"
_ABSTRACT = "Two writers make an introduction of this abstract without seeing each other's text. You write the"
_ASKED = {
    "summary": {
        "first": f"{_POST} short one: say in one or two sentences ({{a}} to {{b}} words) what matters most. {_ALONE}",
        "second": f"{_POST} long one: tell in {{c}} to {{d}} words, about twice as many as the other writer's, what a "
        f"short summary leaves out, and let every sentence follow from the one before. {_ALONE}",
        "single": "Summarise this post twice: first in {a} to {b} words, then, after an empty line, in {c} to {d} "
        f"with what the short summary leaves out. {_ALONE}",
    },
    "introduction": {
        "first": f"{_ABSTRACT} first half, {{a}} to {{b}} words: background and motivation only, and nothing of the "
        f"method. {_ALONE}",
        "second": f"{_ABSTRACT} second half, {{c}} to {{d}} words: method and implications only, and nothing of "
        f"background and motivation. {_ALONE}",
        "single": "Make an introduction of this abstract in two paragraphs with an empty line between them: first "
        f"background and motivation in {{a}} to {{b}} words, then method and implications in {{c}} to {{d}}. {_ALONE}",
    },
}


def read_dataset(settings: PublishedTexts) -> list[tuple[WritingProblem, Row]]:
    """Return the problems of a dataset with their rows, at most as many as the settings say.

    Raises:
        ProblemsError: as `published_problems`; or no text can be used.
    """
    kind = settings.kind
    hub, field, task = HUB[kind]

    def name_of(number: int, row: Fields) -> str:
        return f"{kind}/{number}-{digest([_text(str(row.get(field)))])[:8]}"

    def make(name: str, row: Fields) -> WritingProblem | None:
        text = _text(text_field(row, field))
        return _problem(name, kind, task, text) if _usable(text, task) else None

    problems = list(islice(published_problems(settings, (hub, None), name_of, make), settings.most))
    if not problems:
        low, high = ABSTRACT_WORDS
        source = settings.source or hub
        raise ProblemsError(f"{source}: none of its texts can be used (abstracts of {low} to {high} words)")
    return problems


def _text(published: str) -> str:
    return " ".join(published.replace("<S>", " ").replace("</S>", " ").split())


def _usable(text: str, task: str) -> bool:
    words = len(text.split())
    return ABSTRACT_WORDS[0] <= words <= ABSTRACT_WORDS[1] if task == "introduction" else words > 0


def _problem(name: str, kind: str, task: str, text: str) -> WritingProblem:
    limits = LIMITS[task]
    lengths = dict(zip("abcd", (*limits.first, *limits.second), strict=True))
    what = {"summary": "post", "introduction": "abstract"}[task]
    # the heading that asks for the author's own summary is no part of the post
    source = re.sub(r"\s*TL;DR:\s*$", "", text)
    return WritingProblem(
        id=name,
        source=kind,
        family=name,
        task=task,
        observations={
            role: f"{asked.format(what, **lengths)}\n\n{what.capitalize()}: {source}\n"
            for role, asked in _ASKED[task].items()
        },
        text=source,
        limits=limits,
    )
