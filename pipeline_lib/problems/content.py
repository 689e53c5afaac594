"""When two problems are the same: the common part of every environment's rule, and the check that splits are disjoint.

A problem is defined by its question, not by its name: ids, families, tests and solutions do not count.  Code and text
are normalised first, so a copy that differs in whitespace, case, comments or formatting is still a copy.  A problem in
other words is not recognised.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping


class ProblemsError(ValueError):
    """Problems cannot be prepared or used; the message says what is wrong, where, and what to do."""


def normalised_text(text: str) -> str:
    """Return ``text`` in lower case without white space, ``# comments`` and differences of quotation marks.

    Prompts of datasets are text that is mostly code, so what does not matter in code does not count in text either.
    """
    return "".join(re.sub(r"(?m)(^|\s)#.*$", "", text).lower().replace('"', "'").split())


def normalised_code(source: str) -> str:
    """Return Python source without comments, formatting and differences of case.

    What does not parse is normalised as text.
    """
    try:
        return normalised_text(ast.unparse(ast.parse(source)))
    except (SyntaxError, ValueError):
        return normalised_text(source)


def check_disjoint(splits: Mapping[str, Iterable[tuple[str, str]]]) -> None:
    """Make sure that no problem is in two splits.

    Args:
        splits: by split, the id and content hash of every problem.

    Raises:
        ProblemsError: names both problems and both splits.
    """
    known: dict[str, tuple[str, str]] = {}
    for split, problems in splits.items():
        for name, content in problems:
            other_split, other = known.setdefault(content, (split, name))
            if other_split != split:
                raise ProblemsError(
                    f"problem {name!r} of the {split} split is problem {other!r} of the {other_split} split "
                    "(same content after normalisation); remove one from the source and prepare the problems again"
                )
