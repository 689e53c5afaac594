"""Transform the source of tests into separate cases.

Promises: every ``assert`` in the syntax tree of the tests is one case; a failed case does not stop the cases after it;
an ``assert`` in a loop is one case that holds only if it never failed and the tests ran to their end; ``assert True``
and other constants are dropped, because every program would pass them; ``assert False`` becomes a case that holds if it
is *not* reached.  The number of cases depends only on the tests.

Does not promise: support for test frameworks other than ``unittest``.  Tests are trusted code.
"""

from __future__ import annotations

import ast
import marshal
from dataclasses import dataclass
from functools import lru_cache

from pipeline_lib.sandbox.expressions import constant_truth, foresee
from pipeline_lib.sandbox.jobs import Job
from pipeline_lib.sandbox.stateless import leaves_nothing
from pipeline_lib.sandbox.unittest_source import free_names, touches_files

_ERROR = "__symposium_error__"
CASES = "__symposium_cases__"  # the recorder's name inside the tests' namespace
CALL_FAILED = "__symposium_call_failed__"  # name of the exception of a call without a value
UNCATCHABLE = "__symposium_uncatchable__"  # name of the sandbox's own exceptions, which tests must not catch


class BadTests(ValueError):
    """The tests of a job cannot be used: they do not parse, or nothing in them could fail."""


@dataclass(frozen=True, slots=True)
class TestPlan:
    """Tests, ready to run.

    Attributes:
        code: the rewritten module, compiled, as ``marshal`` writes it: only the process that runs it reads it.
        has_check: the module defines ``check(candidate)``; otherwise its own statements are the tests.
        total: number of cases.
        sources: the assert of each case as text.
        unreached: cases that hold if they are not reached (``assert False``).
        once: cases outside of loops and helper functions, which are reached at most once.
        foreseen: arguments and frames of the first calls, as far as the source determines them.
        methods: names of the ``unittest`` tests, if that is what the tests are; each is one case.
        names: free names of the tests, which may be imports and classes of the program.
        files: the tests may use files.
    """

    code: bytes
    has_check: bool
    total: int
    sources: tuple[str, ...]
    unreached: frozenset[int]
    once: frozenset[int]
    foreseen: tuple[tuple[bytes, bytes], ...]
    methods: tuple[str, ...]
    names: frozenset[str]
    files: bool

    __test__ = False  # pytest would collect it because of its name


@dataclass(frozen=True, slots=True)
class Planned:
    """A job and its tests, ready to run.

    Attributes:
        job: the job.
        plan: its tests.
        prelude: the job's prelude, compiled as the tests are; empty if there is none, or it does not compile.
        stateless: the tests can leave nothing behind in the process that runs them.
    """

    job: Job
    plan: TestPlan
    prelude: bytes
    stateless: bool

    @property
    def total(self) -> int:
        """Return the number of cases."""
        return self.plan.total


def plan_job(job: Job, methods: tuple[str, ...] = ()) -> Planned:
    """Return the job with its tests planned.

    Args:
        job: the job.
        methods: names of its ``unittest`` tests; see `planning`.

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
        """Return the statement that records the case instead of raising."""
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
    """Leaves asserts alone."""

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        """Return the statement."""
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
