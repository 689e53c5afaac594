"""The words in the source of a reward: what it looks for literally stands there, like ``"todo" in code``."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import NamedTuple

#: At most so many words are written into a text, and so many tried as its end.
_MOST_WORDS, _MOST_ENDS = 400, 8

#: Packages whose words are no reward's of a user.
_OTHERS = {*sys.stdlib_module_names, "pipeline_lib"}


class Words(NamedTuple):
    """Words to be written anywhere in a text, and those to be its end."""

    anywhere: Sequence[str] = ()
    last: Sequence[str] = ()


def words_of(source: object) -> Words:
    """Return the texts in the module of an object or function, and in what that uses of other modules of a user.

    There are none without a source.
    """
    texts: list[str] = []
    last: list[str] = []
    for module in _modules_of(source):
        try:
            tree = ast.parse(inspect.getsource(module))
        except (OSError, TypeError, SyntaxError):
            continue
        texts += _texts(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "endswith":
                last += _texts(node)
    whole = [text for text in texts if text.isprintable() and len(text) <= 60]
    parts = [word for text in texts for word in re.findall(r"[^\W\d_]{2,}", text)]
    found = ([text for text in dict.fromkeys(words) if text.strip()] for words in ((*whole, *parts), last))
    return Words(next(found)[:_MOST_WORDS], next(found)[:_MOST_ENDS])


def _texts(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a tree, without documentation."""
    unread = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node not in unread and isinstance(node.value, str):
            yield node.value


def _modules_of(source: object) -> list[ModuleType]:
    own = sys.modules.get(getattr(source, "__module__", ""))
    if own is None:
        return []
    used = [value if isinstance(value, ModuleType) else inspect.getmodule(value) for value in vars(own).values()]
    return list(dict.fromkeys([own, *(module for module in used if module is not None and _is_of_a_user(module))]))


def _is_of_a_user(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return bool(file) and module.__name__.partition(".")[0] not in _OTHERS and "site-packages" not in str(file)
