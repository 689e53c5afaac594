"""Join the texts of a joint action into one program, on the syntax tree.

Promises: imports, constants, classes, decorators and further functions of every agent are kept; the helper agent's
``aux`` and the main agent's entry point take precedence over functions of the same name from the other agent; other
names that both define are kept apart.  The same texts give the same program, for any comments and spacing.  Nothing is
executed here.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline_lib.environments.coding.extraction import Extracted, ParseError, extract
from pipeline_lib.environments.coding.scopes import Function, bindings, import_name, module_references, rename, walk_own
from pipeline_lib.environments.coding.usage import MainModule, definitions, follow, is_thin_wrapper

#: Name of the function that the helper agent writes.
HELPER = "aux"

_NOTHING = f"def {HELPER}(*args, **kwargs):\n    return None"

#: A helper whose value agrees with whatever it is compared with, belongs to the type that the helper's own value has,
#: and adds nothing to what it is combined with.  A main function that only checks its helper goes on as if it had it;
#: one that works with the value is left with nothing.
_AGREEING = f"""
_helper_itself = {HELPER}

class _Agreeing:
    def __init__(self, kind):
        object.__setattr__(self, "kind", kind)
    __class__ = property(lambda self: object.__getattribute__(self, "kind"))
    __hash__ = lambda self: 0
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __bool__ = lambda self: True
    __len__ = __int__ = __index__ = lambda self: 0
    __float__ = lambda self: 0.0
    __str__ = __repr__ = __format__ = lambda self, *args: ""
    __iter__ = lambda self: iter(())
    __add__ = __radd__ = __or__ = __ror__ = __and__ = __rand__ = lambda self, other: other
    __mul__ = __rmul__ = lambda self, other: other if other else self
    __rsub__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = __xor__ = __rxor__ = lambda self, other: other
    __sub__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = lambda self, other: self
    __neg__ = __pos__ = __abs__ = __invert__ = lambda self: self
    __getitem__ = __getattr__ = lambda self, name: self
    __call__ = lambda self, *args, **kwargs: self

def {HELPER}(*args, **kwargs):
    try:
        kind = type(_helper_itself(*args, **kwargs))
    except Exception:
        kind = object
    return _Agreeing(kind)
"""

#: Follows a program with the agreeing helper: its value is nobody's answer.
_NO_ANSWER = """
_whole = {0}
if not isinstance(_whole, type):
    def {0}(*args, **kwargs):
        value = _whole(*args, **kwargs)
        return None if type(value) is _Agreeing else value
"""


@dataclass(frozen=True, slots=True)
class Role:
    """What one agent was expected to write, and what it wrote."""

    function: str  #: name of the function expected of the agent
    defined: bool  #: it is there, as a function, lambda, class or import
    returns: bool  #: it is there and returns (or yields) something other than a bare None
    functions: tuple[str, ...]  #: all functions the agent defined at the top level
    error: ParseError | None  #: what could not be parsed in the agent's text


@dataclass(frozen=True, slots=True)
class Program:
    """A joint action as one program."""

    code: str  #: its source; empty when no agent wrote anything that parses
    #: The source with the helper replaced, by a stub that returns None and by one whose value agrees with whatever it
    #: is compared with; empty unless the main function uses a helper that the helper agent defined.
    ablated: tuple[str, ...]
    parts: tuple[str, ...]  #: the part of the source that each agent contributed, in acting order
    roles: tuple[Role, ...]  #: one per agent, in acting order
    conflicts: tuple[str, ...] = ()  #: names that more than one agent defined, and what became of them
    #: The main function calls the helper agent's function, or hands it to something that will.
    calls_helper: bool = False
    lacks_helper: bool = False  #: it would, but the helper agent did not define one
    ignores_helper: bool = False  #: it calls the helper, and throws every value away
    thin_wrapper: bool = False  #: it adds nothing to the helper; see `pipeline_lib.environments.coding.usage`

    @property
    def parses(self) -> bool:
        return all(role.error is None for role in self.roles)

    @property
    def main(self) -> Role:
        return self.roles[-1]

    def with_helper(self, source: str) -> str:
        """Return the source of a pair's program with another source in place of the helper agent's part."""
        return _joined((source, self.parts[1]))


@functools.lru_cache(maxsize=4096)
def build_program(texts: tuple[str, ...], entry_point: str) -> Program:
    """Join the agents' texts into one program.

    Args:
        texts: the texts of the helper and the main agent, or the text of a single agent that writes everything.
        entry_point: the function that the tests call.
    """
    if len(texts) not in (1, 2):
        raise ValueError(f"a program is written by one or two agents, got {len(texts)} texts")
    main = _part(texts[-1], entry_point, entry_point)
    if len(texts) == 1:
        return Program(main.source, (), (main.source,), (main.role,), (), **main.usage)
    helper = _part(texts[0], HELPER, entry_point)
    sources: tuple[str, ...] = (helper.source, main.source)
    conflicts: tuple[str, ...] = ()
    if helper.names & main.names or entry_point in helper.names:
        sources, conflicts = _separated(texts, entry_point, helper.role.defined)
    roles, calls = (helper.role, main.role), main.usage.get("calls_helper", False)
    if not helper.role.defined:  # so there is no cooperation
        return Program(_joined(sources), (), sources, roles, conflicts, lacks_helper=calls)
    ablated = _ablated(sources, entry_point) if calls else ()
    return Program(_joined(sources), ablated, sources, roles, conflicts, **main.usage)


@dataclass(frozen=True, slots=True)
class _Part:
    """What one agent wrote: its source, the module-level names it binds, and what `Program` says of the helper."""

    role: Role
    source: str
    names: frozenset[str]
    usage: Mapping[str, bool]


@functools.lru_cache(maxsize=8192)
def _part(text: str, function: str, entry_point: str) -> _Part:
    """Read one agent's text; many joint actions of a group share it."""
    try:
        extracted = extract(text, (HELPER, entry_point))
        source = _source(extracted.body)
        role = _role(extracted, function)
        names = frozenset(name for name, _ in bindings(extracted.body))
        return _Part(role, source, names, _usage(extracted.body, entry_point) if function == entry_point else {})
    except RecursionError:
        error = ParseError(1, 1, "nested too deeply")
    except ValueError:
        # The tree holds a formatted string that has no source form in this version of Python.
        error = ParseError(1, 1, "cannot be written as source")
    return _Part(Role(function, False, False, (), error), "", frozenset(), {})


def _usage(body: Sequence[ast.stmt], entry_point: str) -> dict[str, bool]:
    if not any(isinstance(node, ast.Name) and node.id == HELPER for statement in body for node in ast.walk(statement)):
        return {}
    module = MainModule(body, HELPER)
    uses = module.uses_of_helper(entry_point)
    if not uses:
        return {}
    return {
        "calls_helper": True,
        "ignores_helper": not any(uses),
        "thin_wrapper": is_thin_wrapper(module, entry_point),
    }


def _role(extracted: Extracted, function: str) -> Role:
    meaning = definitions(extracted.body)
    node = meaning.get(follow(meaning, function))
    no_function = (ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.Name)
    defined = node is not None and not isinstance(node, no_function)
    functions = tuple(name for name, value in meaning.items() if isinstance(value, Function))
    return Role(function, defined, defined and _returns_value(node), functions, extracted.error)


def _returns_value(node: ast.AST | None) -> bool:
    """Return whether a definition can give its caller anything but None; what is not a function gets the benefit."""
    if isinstance(node, ast.Lambda):
        return not _is_none(node.body)
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return True
    return any(
        isinstance(inner, (ast.Yield, ast.YieldFrom)) or (isinstance(inner, ast.Return) and not _is_none(inner.value))
        for inner in walk_own(node.body)
    )


def _is_none(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and value.value is None)


def _separated(texts: Sequence[str], entry_point: str, helper_defined: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return both agents' sources with the names that both bind resolved, and what was done about each."""
    helper, main = (list(extract(text, (HELPER, entry_point)).body) for text in texts)
    conflicts = []
    in_helper, in_main = _meanings(helper), _meanings(main)
    if helper_defined and HELPER in in_main:
        main = [s for s in map(_Without(HELPER).visit, main) if not isinstance(s, ast.Pass)]
        conflicts.append(f"{HELPER}: the helper's is used, the main agent's is left out")
    taken = {*in_helper, *in_main, *(name.id for name in module_references([*helper, *main]))}
    renamed = {}
    for name, meaning in in_helper.items():
        if name in (HELPER, "*") or (name != entry_point and in_main.get(name, meaning) == meaning):
            continue
        renamed[name] = _fresh(f"{name}_of_helper", taken)
        if name == entry_point:
            conflicts.append(f"{name}: the main agent's is used, the helper's is not")
        else:
            conflicts.append(f"{name}: both agents' are kept, each for its own use")
    rename(helper, renamed)
    return (_source(helper), _source(main)), tuple(conflicts)


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _meanings(body: Sequence[ast.stmt]) -> dict[str, str]:
    """Return what each module-level name is bound to, in a form that can be compared between agents."""
    meanings: dict[str, str] = {}
    for statement in body:
        for name, node in bindings([statement]):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                module = f"{'.' * node.level}{node.module}." if isinstance(node, ast.ImportFrom) else ""
                parts = [module + alias.name for alias in node.names if import_name(alias) == name]
                meaning = f"import {' '.join(parts)}"
            else:
                meaning = ast.dump(statement)
            meanings[name] = f"{meanings.get(name, '')}{meaning}\n"
    return meanings


class _Without(ast.NodeTransformer):
    """Removes the module-level bindings of one name: definitions, assignments and imports, in any block."""

    def __init__(self, name: str) -> None:
        self._name = name

    def visit(self, node: ast.AST) -> Any:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                removed = node.name == self._name  # their bodies are scopes of their own: not visited
            case ast.Assign(targets=targets):
                removed = {target.id for target in targets if isinstance(target, ast.Name)} == {self._name}
            case ast.AnnAssign(target=ast.Name(id=name)):
                removed = name == self._name
            case ast.Import() | ast.ImportFrom():
                node.names = [alias for alias in node.names if import_name(alias) != self._name]
                removed = not node.names
            case _:
                return self.generic_visit(node)
        return ast.copy_location(ast.Pass(), node) if removed else node


def _source(body: Sequence[ast.stmt]) -> str:
    return ast.unparse(ast.Module(body=list(body), type_ignores=[]))


def _ablated(sources: Sequence[str], entry_point: str) -> tuple[str, ...]:
    agreeing = (sources[0], _AGREEING, sources[1], _NO_ANSWER.format(entry_point))
    return _joined((sources[0], _NOTHING, sources[1])), _joined(agreeing)


def _joined(sources: Sequence[str]) -> str:
    """Return sources one after the other, with imports from ``__future__`` first, as Python demands."""
    whole = "\n\n".join(source for source in sources if source)
    if "__future__" not in whole:
        return whole
    body = ast.parse(whole).body
    future = [s for s in body if isinstance(s, ast.ImportFrom) and s.module == "__future__"]
    return _source([*future, *(s for s in body if s not in future)])
