"""The words in the source of a reward: what it looks for literally stands there, like ``"todo" in code``."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from pipeline_lib.audit.pattern_texts import matched_by

#: At most so many words are written into a text, and so many tried as its beginning, its end, or all of it.
_MOST_WORDS, _MOST_ENDS = 400, 32
#: At most so many sizes are tried, and none above this.
_MOST_SIZES, _LONGEST = 4, 5000
#: At most so many objects of a reward are looked through.
_MOST_HELD = 200

#: Packages whose words are no reward's of a user.
_OTHERS = {*sys.stdlib_module_names, "pipeline_lib"}


#: Methods and functions whose texts must be the beginning of another text, or its end, and those of `re`.
_BEGINS, _ENDS = {"startswith", "removeprefix", "match", "fullmatch"}, {"endswith", "removesuffix"}
_PATTERNS = {"search", "match", "fullmatch", "findall", "finditer", "compile", "sub", "subn", "split"}


class Words(NamedTuple):
    """Words to be written anywhere in a text, those to be its beginning, its end, or all of it; and sizes of texts."""

    anywhere: Sequence[str] = ()
    first: Sequence[str] = ()
    last: Sequence[str] = ()
    alone: Sequence[str] = ()
    sizes: Sequence[int] = ()


def words_of(source: object) -> Words:
    """Return the texts in the module of an object or function, and in what that uses of other modules of a user.

    ``source`` may also be a tuple of these.  What an object or function holds (attributes, variables of an enclosing
    function, arguments of a ``partial``) is read, too.  What was written in a notebook or at a prompt has no module
    with a source: then the functions themselves are read, or at least their constants.
    """
    texts: list[str] = []
    first: list[str] = []
    last: list[str] = []
    alone: list[str] = []
    sizes: list[int] = []
    several = _held_by(source)
    read: list[ModuleType | FunctionType] = [module for one in several for module in _modules_of(one)]
    read += [function for one in several for function in _functions_without_a_module(one)]
    for code in dict.fromkeys(read):
        if isinstance(code, FunctionType):
            texts += _texts_named_by(code)
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
        except (OSError, TypeError, SyntaxError):
            texts += [] if isinstance(code, ModuleType) else _constants(code)
            continue
        texts += _texts(tree)
        for node in ast.walk(tree):
            name = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
            said = [*_texts(node)] if name in _BEGINS | _ENDS | _PATTERNS else []
            if name in _PATTERNS:
                examples = {pattern: [*matched_by(pattern)] for pattern in said}
                said = [text for found in examples.values() for text in found]
                texts += said
                whole = [found for pattern, found in examples.items() if pattern.endswith("$") or name == "fullmatch"]
                alone += itertools.chain.from_iterable(whole)
            first += said if name in _BEGINS else []
            last += said if name in _ENDS else []
            alone += _compared(node)
            sizes += _sizes(node)
    short = [text for text in texts if text.isprintable() and len(text) <= 60]
    parts = [word for text in texts for word in re.findall(r"[^\W\d_]{2,}", text)]
    anywhere = _distinct([*short, *parts])[:_MOST_WORDS]
    begins, ends, wholes = (_distinct(words)[:_MOST_ENDS] for words in (first, last, alone))
    return Words(anywhere, begins, ends, wholes, [*dict.fromkeys(sizes)][:_MOST_SIZES])


def _distinct(texts: Sequence[str]) -> list[str]:
    return [text for text in dict.fromkeys(texts) if text.strip()]


def _texts(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a tree, without documentation."""
    unread = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node not in unread and isinstance(node.value, str):
            yield node.value


def _compared(node: ast.AST) -> Iterator[str]:
    """Yield the texts with which a comparison wants another one to be equal."""
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.In):
        for side in (node.left, *node.comparators):
            if isinstance(node.ops[0], ast.Eq) or isinstance(side, ast.Tuple | ast.List | ast.Set):
                yield from _texts(side) if isinstance(side, ast.Constant | ast.Tuple | ast.List | ast.Set) else ()


def _sizes(node: ast.AST) -> Iterator[int]:
    """Yield the numbers with which the length of something is compared."""
    if isinstance(node, ast.Compare):
        sides = (node.left, *node.comparators)
        if any(isinstance(side, ast.Call) and getattr(side.func, "id", "") == "len" for side in sides):
            for side in sides:
                if isinstance(side, ast.Constant) and type(side.value) is int and 0 < side.value <= _LONGEST:
                    yield side.value


_NOTHING_HELD = (str, bytes, int, float, type, ModuleType, type(None))


def _held_by(source: object) -> list[object]:
    """Return what a reward consists of: itself, and all that it holds, directly or not."""
    waiting, found = [source], dict[int, object]()
    while waiting and len(found) < _MOST_HELD:
        held = waiting.pop(0)
        if id(held) in found or (held is not source and isinstance(held, _NOTHING_HELD)):
            continue
        found[id(held)] = held
        if isinstance(held, Mapping):
            waiting += held.values()
        elif isinstance(held, list | tuple | set | frozenset):
            waiting += held
        elif isinstance(held, functools.partial):
            waiting += [held.func, *held.args, *held.keywords.values()]
        elif isinstance(held, FunctionType):
            cells = held.__closure__ or ()
            waiting += [value for cell in cells for value in _content(cell)] + [getattr(held, "__wrapped__", None)]
        elif isinstance(held, MethodType):
            waiting += [held.__self__, held.__func__]
        else:
            waiting += getattr(held, "__dict__", {}).values()
    return list(found.values())


def _content(cell: CellType) -> list[object]:
    try:
        return [cell.cell_contents]
    except ValueError:  # the variable has no value yet
        return []


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function and that of the functions and comprehensions within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _constants(function: FunctionType) -> Iterator[str]:
    """Yield the texts in a function's code."""
    for code in _codes(function.__code__):
        for constant in code.co_consts:
            several = constant if isinstance(constant, tuple | frozenset) else (constant,)
            yield from (one for one in several if isinstance(one, str))


def _named(function: FunctionType) -> list[Any]:
    """Return the values of the global names in a function's code."""
    names = dict.fromkeys(name for code in _codes(function.__code__) for name in code.co_names)
    return [function.__globals__[name] for name in names if name in function.__globals__]


def _texts_named_by(function: FunctionType) -> Iterator[str]:
    """Yield the global texts that a function names, alone or in a collection."""
    for value in _named(function):
        several = value if isinstance(value, list | tuple | set | frozenset | dict) else (value,)
        yield from (one for one in several if isinstance(one, str))


def _functions_without_a_module(source: object) -> list[FunctionType]:
    """Return the functions of an object, and those that they use, if they were written where no module has a source."""
    waiting = [source, *vars(type(source)).values()] if not isinstance(source, FunctionType) else [source]
    found: list[FunctionType] = []
    while waiting:
        function = waiting.pop()
        if not isinstance(function, FunctionType) or function in found:
            continue
        if hasattr(sys.modules.get(function.__module__), "__file__"):
            continue
        found.append(function)
        for named in _named(function):
            waiting += [named, *(vars(named).values() if isinstance(named, type) else ())]
    return found


def _modules_of(source: object) -> list[ModuleType]:
    own = sys.modules.get(getattr(source, "__module__", None) or "")
    if own is None or not hasattr(source, "__class__") or own.__name__.partition(".")[0] in sys.stdlib_module_names:
        return []
    used = [value if isinstance(value, ModuleType) else inspect.getmodule(value) for value in vars(own).values()]
    return list(dict.fromkeys([own, *(module for module in used if module is not None and _is_of_a_user(module))]))


def _is_of_a_user(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return bool(file) and module.__name__.partition(".")[0] not in _OTHERS and "site-packages" not in str(file)
