"""Equality of problems: normalisation, common to all environments, and the check that splits are disjoint.

A problem is defined by its question: ids, families, tests and solutions do not count.  Code and text are normalised
first, so a copy that differs in whitespace, case, comments or formatting is still a copy.  Paraphrases are not found.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping


class ProblemsError(ValueError):
    """Problems cannot be prepared or used; the message names the defect, its location, and the remedy."""


def normalised_text(text: str) -> str:
    """Return ``text`` in lower case without white space, ``# comments`` and differences of quotation marks.

    Prompts of datasets are mostly code, so their text is normalised like code.
    """
    return "".join(re.sub(r"(?m)(^|\s)#.*$", "", text).lower().replace('"', "'").split())


def normalised_code(source: str) -> str:
    """Return Python source without comments, formatting and differences of case.

    Source that does not parse is normalised as text.
    """
    try:
        return normalised_text(ast.unparse(ast.parse(source)))
    except (SyntaxError, ValueError):
        return normalised_text(source)


def check_disjoint(splits: Mapping[str, Iterable[tuple[str, str]]]) -> None:
    """Check that no problem is in two splits.

    Args:
        splits: by split, the id and content hash of every problem.

    Raises:
        ProblemsError: names both problems and both splits.
    """
    first_seen: dict[str, tuple[str, str]] = {}
    for split, problems in splits.items():
        for name, content in problems:
            other_split, other = first_seen.setdefault(content, (split, name))
            if other_split != split:
                raise ProblemsError(
                    f"problem {name!r} of the {split} split is problem {other!r} of the {other_split} split "
                    "(same content after normalisation); remove one from the source and prepare the problems again"
                )
