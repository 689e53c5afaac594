"""Find tests that can leave nothing behind in the process that runs them.

The list is of what is allowed.  Such tests consist of asserts, assignments, loops and functions; they use only names
that they define, builtins without side effects, methods of builtin types, and functions of a few modules that change
nothing but their arguments.  Seeds of random numbers are set anew for each job.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import symtable
from collections.abc import Iterator
from functools import lru_cache

_BUILTINS = frozenset(
    (
        *("abs", "all", "any", "ascii", "bin", "bool", "bytearray", "bytes", "callable", "chr", "complex", "dict"),
        *("divmod", "enumerate", "filter", "float", "format", "frozenset", "hash", "hex", "int", "isinstance"),
        *("issubclass", "iter", "len", "list", "map", "max", "min", "next", "oct", "ord", "pow", "print", "range"),
        *("repr", "reversed", "round", "set", "slice", "sorted", "str", "sum", "tuple", "zip"),
    )
) | {name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, Exception)}
_MODULES = ("bisect", "collections", "copy", "heapq", "itertools", "math", "random", "string", "typing")
_TYPES = (bool, bytearray, bytes, complex, dict, float, frozenset, int, list, range, set, str, tuple)
_METHODS = frozenset(name for kind in _TYPES for name in dir(kind) if not name.startswith("_"))
_NODES = (
    *(ast.Module, ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Assert, ast.Pass, ast.Return, ast.Raise),
    *(ast.If, ast.For, ast.While, ast.Break, ast.Continue, ast.Try, ast.ExceptHandler, ast.FunctionDef, ast.Lambda),
    *(ast.arguments, ast.arg, ast.keyword, ast.Call, ast.Name, ast.Constant, ast.Subscript, ast.Slice, ast.Starred),
    *(ast.Tuple, ast.List, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
    *(ast.comprehension, ast.IfExp, ast.NamedExpr, ast.JoinedStr, ast.FormattedValue, ast.Compare, ast.BoolOp),
    *(ast.UnaryOp, ast.BinOp, ast.Attribute, ast.Import, ast.ImportFrom, ast.alias, ast.expr_context, ast.boolop),
    *(ast.operator, ast.unaryop, ast.cmpop),
)


_FORBIDDEN = frozenset(dir(builtins)) - _BUILTINS


@lru_cache(maxsize=4096)
def leaves_nothing(prelude: str, tests: str, entry_point: str) -> bool:
    """Return whether tests, with their prelude, can change nothing that outlives their namespace."""
    known = {entry_point, "candidate"} | _BUILTINS
    nodes: list[ast.AST] = []
    for source in (prelude, tests):
        try:
            nodes += ast.walk(ast.parse(source))
            table = symtable.symtable(source, "<tests>", "exec")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        known |= {name.get_name() for name in table.get_symbols() if name.is_assigned() or name.is_imported()}
        if not known.issuperset(_global_names(table)):
            return False
    modules = {name for node in nodes if isinstance(node, ast.Import) for name in _modules(node)}
    return all(_allowed(node, modules) for node in nodes)


def _global_names(table: symtable.SymbolTable) -> Iterator[str]:
    """Yield the names that are looked up in the module or among the builtins, in any scope."""
    inner = table.get_type() != "module"
    for name in table.get_symbols():
        if name.is_referenced() and (name.is_global() or not inner):
            yield name.get_name()
    for child in table.get_children():
        yield from _global_names(child)


def _modules(node: ast.Import) -> list[str]:
    return [alias.asname or alias.name for alias in node.names]


def _allowed(node: ast.AST, modules: set[str]) -> bool:
    match node:
        case ast.Import(names=names):
            return all(alias.name in _MODULES for alias in names)
        case ast.ImportFrom(module=str(module), names=names, level=0):
            return module in _MODULES and all(alias.name in _public(module) for alias in names)
        case ast.FunctionDef(decorator_list=decorators):
            return not decorators
        case ast.Name(id=name):
            return name not in _FORBIDDEN and not name.startswith("__")
        case ast.Attribute(value=ast.Name(id=module), attr=name, ctx=ast.Load()) if module in modules:
            return module in _MODULES and name in _public(module)
        case ast.Attribute(attr=name, ctx=ast.Load()):
            return name in _METHODS
    return isinstance(node, _NODES) and not isinstance(node, ast.Attribute | ast.ImportFrom)


@lru_cache(maxsize=len(_MODULES))
def _public(module: str) -> frozenset[str]:
    found = importlib.import_module(module)
    names = getattr(found, "__all__", [name for name in dir(found) if not name.startswith("_")])
    return frozenset(name for name in names if module != "typing" or name[0].isupper())  # others evaluate text
