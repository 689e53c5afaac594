"""Transform the source of tests into separate cases, and find out what it shows before anything runs.

Promises: every ``assert`` in the syntax tree of the tests is one case; a failed case does not stop the cases after it;
an ``assert`` in a loop is one case that holds only if it never failed and the tests ran to their end; ``assert True``
and other constants are dropped, because every program would pass them; ``assert False`` becomes a case that holds if it
is *not* reached.  The number of cases depends only on the tests.

Does not promise: support for test frameworks other than ``unittest``.  Tests are trusted code.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import marshal
import re
import symtable
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pipeline_lib.sandbox.inside import messages
from pipeline_lib.sandbox.inside.values import BadValue
from pipeline_lib.sandbox.jobs import Job

# The value of an expression with only these nodes does not depend on the candidate.
_CONSTANT_NODES = (
    ast.Constant,
    ast.Tuple,
    ast.List,
    ast.Set,
    ast.Dict,
    ast.UnaryOp,
    ast.BinOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.expr_context,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
)
# An assert with one call of the candidate and otherwise only these nodes makes that call exactly once, in order.
_STRAIGHT_NODES = (*_CONSTANT_NODES, ast.Call, ast.Name)
_BRANCHING_NODES = (ast.BoolOp, ast.IfExp)
_PURE = frozenset(
    [
        "abs",
        "bool",
        "dict",
        "float",
        "int",
        "len",
        "list",
        "max",
        "min",
        "round",
        "set",
        "sorted",
        "str",
        "sum",
        "tuple",
    ]
)


def constant_truth(test: ast.expr) -> bool | None:
    """Return the truth value of a constant expression, else None; False if evaluating it raises."""
    if not all(isinstance(node, _CONSTANT_NODES) for node in ast.walk(test)):
        return None
    try:
        return bool(eval(compile(ast.Expression(test), "<constant>", "eval"), {"__builtins__": {}}))
    except Exception:
        return False


def foresee(
    body: list[ast.stmt], check: ast.FunctionDef | None, names: frozenset[str]
) -> tuple[tuple[bytes, bytes], ...]:
    """Return arguments and frames of the candidate's first calls, up to the first one that is not certain."""
    if check is not None:
        around = [node for statement in body if statement is not check for node in ast.walk(statement)]
        if check.decorator_list or any(isinstance(node, ast.Call | ast.Assert) for node in around):
            return ()
        body = check.body
    requests: list[tuple[bytes, bytes]] = []
    for statement in body:
        if isinstance(statement, ast.Assert):
            if constant_truth(statement.test) is not None:
                continue
            args = _only_call(statement.test, names)
            if args is None:
                break
            try:
                request = messages.write_call(len(requests) + 1, args, {}, early=True)
            except BadValue:
                break
            requests.append((messages.write_request(*args), messages.framed(request)))
        elif not isinstance(statement, ast.Pass | ast.Import | ast.ImportFrom) and not (
            isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        ):
            break
    return tuple(requests)


def _only_call(test: ast.expr, names: frozenset[str]) -> list[Any] | None:
    """Return the arguments of the candidate's call in an expression that calls it exactly once, else None."""
    nodes = list(ast.walk(test))
    for node in nodes:
        if not isinstance(node, _STRAIGHT_NODES) or isinstance(node, _BRANCHING_NODES):
            return None
        if isinstance(node, ast.Compare) and len(node.ops) > 1:
            return None  # a chain of comparisons may stop early
        if isinstance(node, ast.Name) and node.id not in names | _PURE:
            return None
        if isinstance(node, ast.Call) and (node.keywords or not isinstance(node.func, ast.Name)):
            return None
    found = [node for node in nodes if isinstance(node, ast.Name) and node.id in names]
    called = [node for node in nodes if isinstance(node, ast.Call) and node.func in found]
    if len(found) != 1 or len(called) != 1 or any(map(_is_ambiguous, ast.walk(called[0]))):
        return None
    try:
        return [ast.literal_eval(argument) for argument in called[0].args]
    except (ValueError, TypeError):
        return None


def _is_ambiguous(node: ast.AST) -> bool:
    """Return whether ``marshal`` may write the literal in two ways, or in the same way as something else."""
    # The order of a set differs between processes; bytes are written like a bytearray.
    return isinstance(node, ast.Set) or (isinstance(node, ast.Constant) and isinstance(node.value, bytes))


_UNITTEST = re.compile(r"unittest|TestCase|absltest|load_tests")
_FILES = frozenset({"open", "os", "sqlite3", "pathlib", "shutil", "tempfile", "zipfile", "glob", "io"})
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def may_be_unittest(tests: str, prelude: str) -> bool:
    """Return whether tests may hold ``unittest`` tests; only running them tells (`runner.find_tests`)."""
    return _UNITTEST.search(tests) is not None or _UNITTEST.search(prelude) is not None


def free_names(tree: ast.Module) -> frozenset[str]:
    """Return the names that the module reads and binds in no scope, without builtins."""
    read: set[str] = set()
    bound = set(vars(builtins)) | {"__file__"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, _FUNCTIONS | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            bound.add(node.name)
    return frozenset(read - bound)


def touches_files(tree: ast.Module) -> bool:
    """Return whether the module names ``open`` or a module for files."""
    return any(
        (isinstance(node, ast.Name) and node.id in _FILES)
        or (isinstance(node, ast.alias) and node.name.partition(".")[0] in _FILES)
        or (isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in _FILES)
        for node in ast.walk(tree)
    )


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
    """Return whether tests, with their prelude, can change nothing that outlives their namespace.

    The list is of what is allowed.  Such tests consist of asserts, assignments, loops and functions; they use only
    names that they define, builtins without side effects, methods of builtin types, and functions of a few modules that
    change nothing but their arguments.  Seeds of random numbers are set anew for each job.
    """
    known = {entry_point, "candidate"} | _BUILTINS
    nodes: list[ast.AST] = []
    for source in (prelude, tests):
        try:
            tree = ast.parse(source)
            table = symtable.symtable(source, "<tests>", "exec")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        if touches_files(tree):  # also those of the program come here
            return False
        nodes += ast.walk(tree)
        known |= {name.get_name() for name in table.get_symbols() if name.is_assigned() or name.is_imported()}
        if not known.issuperset(_global_names(table)):
            return False
    modules = {name for node in nodes if isinstance(node, ast.Import) for name in _modules(node)}
    return all(_allowed(node, modules) for node in nodes)


def _global_names(table: symtable.SymbolTable) -> Iterator[str]:
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


_ERROR = "__symposium_error__"
CASES = "__symposium_cases__"  # the recorder's name inside the tests' namespace
CALL_FAILED = "__symposium_call_failed__"  # name of the exception of a call without a value
UNCATCHABLE = "__symposium_uncatchable__"  # name of the sandbox's own exceptions, which tests must not catch


class BadTests(ValueError):
    """The tests of a job cannot be used: they do not parse, or nothing in them could fail."""


@dataclass(frozen=True, slots=True)
class TestPlan:
    """Tests, ready to run."""

    code: bytes  #: the rewritten module, compiled, as ``marshal`` writes it: only the process that runs it reads it
    has_check: bool  #: the module defines ``check(candidate)``; otherwise its own statements are the tests
    total: int  #: number of cases
    sources: tuple[str, ...]  #: the assert of each case as text
    unreached: frozenset[int]  #: cases that hold if they are not reached (``assert False``)
    once: frozenset[int]  #: cases outside of loops and helper functions, which are reached at most once
    #: Arguments and frames of the first calls, as far as the source determines them.
    foreseen: tuple[tuple[bytes, bytes], ...]
    methods: tuple[str, ...]  #: names of the ``unittest`` tests, if that is what the tests are; each is one case
    names: frozenset[str]  #: free names of the tests, which may be imports and classes of the program
    files: bool  #: the tests may use files

    __test__ = False  # pytest would collect it because of its name


@dataclass(frozen=True, slots=True)
class Planned:
    """A job and its tests, ready to run."""

    job: Job  #: the job
    plan: TestPlan  #: its tests
    prelude: bytes  #: the job's prelude, compiled as the tests are; empty if there is none, or it does not compile
    stateless: bool  #: the tests can leave nothing behind in the process that runs them

    @property
    def total(self) -> int:
        """Return the number of cases."""
        return self.plan.total


def plan_job(job: Job, methods: tuple[str, ...] = ()) -> Planned:
    """Return the job with its tests planned.

    Args:
        job: the job.
        methods: names of its ``unittest`` tests; see `backend.Planner`.

    Raises:
        BadTests: as of `plan_tests`.
    """
    if job.collect:
        return Planned(job, _plan_collection(job.tests, job.entry_point), _compiled(job.prelude), stateless=False)
    plan = plan_tests(job.tests, job.entry_point, methods)
    stateless = not methods and leaves_nothing(job.prelude, job.tests, job.entry_point)
    return Planned(job, plan, _compiled(job.prelude), stateless)


@lru_cache(maxsize=4096)
def _compiled(prelude: str) -> bytes:
    try:
        return marshal.dumps(compile(prelude, "<prelude>", "exec", dont_inherit=True)) if prelude else b""
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return b""  # the tests raise it


@lru_cache(maxsize=4096)
def plan_tests(tests: str, entry_point: str, methods: tuple[str, ...] = ()) -> TestPlan:
    """Parse and rewrite ``tests``.

    Args:
        tests: source that defines ``check(candidate)`` or ``unittest`` tests, or asserts at its top level that call
            ``entry_point``.
        entry_point: name of the function or class under test.
        methods: names of its ``unittest`` tests.

    Raises:
        BadTests: the source does not parse, has no assert that could fail, or has one that always holds.
    """
    tree = _parse(tests)
    names, files = free_names(tree) - {entry_point, "candidate"}, touches_files(tree)
    tree, has_check, rewriter = _rewrite(tree, entry_point, bool(methods))
    sources = methods or tuple(rewriter.sources)
    return TestPlan(
        code=marshal.dumps(compile(tree, "<tests>", "exec", dont_inherit=True)),
        has_check=has_check,
        total=len(sources),
        sources=sources,
        unreached=frozenset(rewriter.unreached),
        once=frozenset(range(len(sources)) if methods else rewriter.once),
        foreseen=() if files else rewriter.foreseen,  # the program must receive the tests' files first
        methods=methods,
        names=names,
        files=files,
    )


@lru_cache(maxsize=1024)
def _plan_collection(tests: str, entry_point: str) -> TestPlan:
    """Return a plan without cases, to collect the tests; their module's own asserts are not run."""
    tree = _parse(tests)
    names, files = free_names(tree) | {entry_point, "candidate"}, touches_files(tree)
    tree, _, _ = _rewrite(tree, entry_point, True)
    code = marshal.dumps(compile(tree, "<tests>", "exec", dont_inherit=True, optimize=1))
    return TestPlan(code, False, 0, (), frozenset(), frozenset(), (), (), names, files)


def _parse(tests: str) -> ast.Module:
    try:
        return ast.parse(tests)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadTests(f"the tests do not parse: {type(error).__name__}: {error}") from error


def _rewrite(tree: ast.Module, entry_point: str, whole: bool) -> tuple[ast.Module, bool, _Rewriter]:
    """Return the rewritten tree, whether it has a check function, and what the rewriting found.

    Args:
        tree: the tests.
        entry_point: name of the function or class under test.
        whole: their cases are test methods, and asserts are not rewritten.
    """
    if whole:
        rewriter: _Rewriter = _Whole(frozenset(), None)
        return ast.fix_missing_locations(rewriter.visit(tree)), False, rewriter
    check = next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "check"), None)
    names = {entry_point, "candidate"}
    if check is not None:
        if not check.args.args:
            raise BadTests("check() of the tests takes no argument; it must take the candidate")
        names.add(check.args.args[0].arg)
    rewriter = _Rewriter(frozenset(names), None if check is None or _runs_again(check, tree) else check)
    rewriter.foreseen = foresee(tree.body, check, rewriter.names)
    tree = ast.fix_missing_locations(rewriter.visit(tree))
    if not rewriter.sources:
        raise BadTests(
            "the tests have no assert that the program could fail, and no unittest test that runs; write "
            "`def check(candidate)` with asserts, or a unittest.TestCase with test methods"
        )
    return tree, check is not None, rewriter


def count_cases(tests: str, entry_point: str = "candidate") -> int:
    """Return the number of cases in ``tests``; raises `BadTests` as `plan_tests` does."""
    return plan_tests(tests, entry_point).total


ALWAYS_TRUE = "assert (condition, message) holds for every program; write `assert condition, message`"


def is_always_true(node: ast.Assert) -> bool:
    """Return whether the condition of an assert is a tuple, which is always true; not for constants."""
    return isinstance(node.test, ast.Tuple) and constant_truth(node.test) is None


class _Rewriter(ast.NodeTransformer):
    """Replaces asserts by recorded cases.

    Exception handlers that catch everything are changed to re-raise the sandbox's own exceptions.
    """

    def __init__(self, names: frozenset[str], check: ast.FunctionDef | None) -> None:
        self.names = names
        self.sources: list[str] = []
        self.unreached: set[int] = set()
        self.once: set[int] = set()
        self._check = check  # runs once, like the module
        self._repeats = 0  # number of enclosing loops and functions
        self.foreseen: tuple[tuple[bytes, bytes], ...] = ()

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        if is_always_true(node):
            raise BadTests(f"line {node.lineno}: {ALWAYS_TRUE}")
        value = constant_truth(node.test)
        if value is True:
            return ast.copy_location(ast.Pass(), node)
        index = len(self.sources)
        self.sources.append(ast.unparse(ast.Assert(test=node.test)))
        if not self._repeats:
            self.once.add(index)
        if value is False:
            self.unreached.add(index)
            return ast.copy_location(ast.Expr(_record("reached", index)), node)
        test = self.visit(node.test)
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
            call = _record("equal", index, test.left, test.comparators[0])
        else:
            call = _record("true", index, test)
        handler = ast.ExceptHandler(
            type=ast.Tuple([_name("Exception"), _name(CALL_FAILED)], ast.Load()),
            name=_ERROR,
            body=[ast.Expr(_record("error", index, _name(_ERROR)))],
        )
        wrapped = ast.Try(body=[ast.Expr(call)], handlers=[handler], orelse=[], finalbody=[])
        return ast.copy_location(wrapped, node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Return the comparison; the recorder decides on the identity of two values."""
        self.generic_visit(node)
        operator, operands = node.ops[0], [node.left, *node.comparators]
        if len(operands) != 2 or not isinstance(operator, ast.Is | ast.IsNot) or any(map(_is_constant, operands)):
            return node
        found = _identical(*operands)
        return found if isinstance(operator, ast.Is) else ast.UnaryOp(ast.Not(), found)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Return the call; for `unittest`'s assertions of identity the recorder decides, too."""
        self.generic_visit(node)
        word = _IDENTITY.get(node.func.attr) if isinstance(node.func, ast.Attribute) else None
        if word is not None and len(node.args) > 1 and not any(isinstance(arg, ast.Starred) for arg in node.args[:2]):
            method = ast.Attribute(node.func.value, word, ast.Load())  # type: ignore[attr-defined]
            return ast.Call(method, [_identical(*node.args[:2]), *node.args[2:]], node.keywords)
        return node

    def visit_For(self, node: ast.stmt) -> ast.stmt:
        """Return the statement; statements in it may be reached many times."""
        self._repeats += 1
        self.generic_visit(node)
        self._repeats -= 1
        return node

    visit_AsyncFor = visit_While = visit_AsyncFunctionDef = visit_For

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        """Return the statement; a function other than the check may be called many times."""
        return self.visit_For(node) if node is not self._check else self.generic_visit(node)  # type: ignore[return-value]

    def visit_Try(self, node: ast.Try) -> ast.stmt:
        """Return the statement; a handler must not catch the exception of a dead or timed-out program."""
        self.generic_visit(node)
        if any(_catches_everything(handler) for handler in node.handlers):
            node.handlers.insert(0, ast.ExceptHandler(type=_name(UNCATCHABLE), name=None, body=[ast.Raise()]))
        return node


class _Whole(_Rewriter):
    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        return self.generic_visit(node)  # type: ignore[return-value]


def _runs_again(check: ast.FunctionDef, tree: ast.Module) -> bool:
    """Return whether something other than the judge might call the check."""
    return bool(check.decorator_list) or any(isinstance(n, ast.Name) and n.id == "check" for n in ast.walk(tree))


def _catches_everything(handler: ast.ExceptHandler) -> bool:
    kind = handler.type
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(kind is None or (isinstance(kind, ast.Name) and kind.id == "BaseException") for kind in kinds)


_IDENTITY = {"assertIs": "assertTrue", "assertIsNot": "assertFalse"}


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)


def _identical(left: ast.expr, right: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(_name(CASES), "identical", ast.Load()), [left, right], [])


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _record(method: str, index: int, *values: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(_name(CASES), method, ast.Load()), [ast.Constant(index), *values], [])
