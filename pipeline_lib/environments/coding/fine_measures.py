"""What the fine reward measures beside the result: mutants, how hard tests are, and the contract of a helper.

*Mutants* of a source are copies with one small change each, which tests of its behaviour should notice.  The changes:
an integer plus and minus one, a truth value negated, another comparison, another arithmetic or logical operator, a sign
or a ``not`` left out, the branches of a conditional expression exchanged, a condition of a comprehension left out, a
call of one argument replaced by the argument.  Strings, names and statements stay.

The *hardness* of a test is the share of almost right programs that fail it.  These are mutants of the problem's known
solution, so it depends on the problem only, not on a model or a seed.  Without a known solution all tests are equally
hard.

The *contract* of a generated problem's helper is tests of the helper alone.  The helper's observation says which items
to choose and what becomes of each.  The tests ask, on inputs that no other test has, for the number of items and for
the items themselves, so a helper that chooses rightly and changes nothing has half.  Published problems say nothing
about a helper: they have no contract.

Nothing is executed here but this project's own solutions, and the same source gives the same result.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

from pipeline_lib.environment_kit.programs import parsed
from pipeline_lib.environments.coding.generated import recipe_of
from pipeline_lib.environments.coding.problem import CodingProblem
from pipeline_lib.environments.coding.recipe import HELPER, Recipe
from pipeline_lib.sandbox import Verdict
from pipeline_lib.storage import digest

_OPPOSITES = ((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot))
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    one: other for pair in _OPPOSITES for one, other in (pair, pair[::-1])
}

_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
}


@functools.lru_cache(maxsize=4096)
def mutants(source: str, limit: int) -> tuple[str, ...]:
    """Return up to ``limit`` different mutants of a source, none of them equal to it as text.

    If there are more, they are taken at equal distances in the source.  A source that is not Python, or is nested too
    deeply, has none.

    Args:
        source: Python.
        limit: greatest number of mutants.
    """
    if (tree := parsed(source)) is None:
        return ()
    try:
        original = ast.unparse(tree)
    except (ValueError, RecursionError):
        return ()
    sites = list(_sites(tree))
    if len(sites) > limit:
        sites = [sites[number * len(sites) // limit] for number in range(limit)]
    sources: dict[str, None] = {}
    for holder, key, changed in sites:
        kept, holder[key] = holder[key], changed
        with contextlib.suppress(ValueError, RecursionError):  # a formatted string without a source form in this Python
            sources[ast.unparse(tree)] = None
        holder[key] = kept
    sources.pop(original, None)
    return tuple(sources)


def _sites(tree: ast.AST) -> Iterator[tuple[Any, Any, ast.AST]]:
    """Yield every change: the list, or the attributes of a node, in which it is made, the key there, the new node."""
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            holder: Any = value if isinstance(value, list) else vars(parent)
            for key in range(len(value)) if isinstance(value, list) else (field,):
                if isinstance(holder[key], ast.AST):
                    yield from ((holder, key, changed) for changed in _changes(holder[key]))


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
        case ast.Compare(left=left, ops=[operator], comparators=values):
            yield ast.Compare(left, [_COMPARISONS[type(operator)]()], values)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _ARITHMETIC:
            yield ast.BinOp(left, _ARITHMETIC[type(operator)](), right)
        case ast.BoolOp(op=operator, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.IfExp(test=test, body=body, orelse=other):
            yield ast.IfExp(test, other, body)
        case ast.comprehension(ifs=conditions) if conditions:
            for number in range(len(conditions)):
                rest = conditions[:number] + conditions[number + 1 :]
                yield ast.comprehension(node.target, node.iter, rest, node.is_async)
        case ast.Call(args=[argument], keywords=[]) if not isinstance(argument, (ast.Starred, ast.GeneratorExp)):
            yield argument


#: Greatest number of mutants of a solution.
LADDER = 12


def almost_right(problem: CodingProblem) -> tuple[str, ...]:
    """Return mutants of the problem's known solution as source; none if there is no solution that parses."""
    return mutants("\n\n".join(problem.reference.values()), LADDER)


def passed_cases(verdict: Verdict) -> frozenset[int]:
    """Return the numbers of the tests that a program passes."""
    return frozenset(case.index for case in verdict.cases if case.result == "ok") if verdict.passed else frozenset()


def hardness_of_tests(ladder: Sequence[Verdict], total: int) -> tuple[float, ...]:
    """Return for each of ``total`` tests the share of the programs that fail it, in [0, 1]; 0 without programs."""
    passed = [passed_cases(verdict) for verdict in ladder]
    return tuple(sum(test not in cases for cases in passed) / max(1, len(passed)) for test in range(total))


def weighted_share(passed: frozenset[int], hardness: Sequence[float], extra: float) -> float:
    """Return the share of the tests passed, where a test of hardness h weighs 1 + ``extra`` h; 1.0 if all are passed.

    Args:
        passed: numbers of the tests passed.
        hardness: of each test, in [0, 1].
        extra: at least 0; 0 gives every test the same weight.
    """
    weights = [1.0 + extra * hard for hard in hardness]
    total = math.fsum(weights)
    return math.fsum(weights[number] for number in sorted(passed)) / total if total else 0.0


def noticed(verdict: Verdict, ablated: Sequence[Verdict]) -> float:
    """Return the share of a helper's mutants that the tests notice, in [0, 1]; 0 without mutants that could be judged.

    A mutant is noticed if a test that the program passes gets a wrong value from it, and unnoticed if it passes all
    that the program passes.  One that only stops with an error says nothing and is left out: otherwise a helper would
    gain by checking itself.  ``ablated`` are the verdicts on the program with each mutant in place of its helper.
    """
    passed, judged = passed_cases(verdict), []
    for other in ablated:
        wrong = {case.index for case in other.cases if case.result == "fail"}
        if passed & wrong:
            judged.append(True)
        elif passed <= passed_cases(other):
            judged.append(False)
    return sum(judged) / len(judged) if judged else 0.0


#: Chosen items of each input.  No two are alike and none is 0, so that a helper that ignores its input meets few tests.
_CHOSEN = (1, 2, 3, 4)

#: Range of the number of items of an input that are not chosen; at least one, so that returning the input is wrong.
_OTHERS = (1, 3)

#: Range of an item; the problem's own tests use the same.
_VALUES = range(-30, 31)


def contract(problem: CodingProblem) -> str:
    """Return the source of ``def check(candidate)`` for the helper, where ``candidate`` is ``aux``; empty if unknown.

    Only the problem's id is read, never its code: a client may have written that.
    """
    if problem.source != "generated":
        return ""
    try:
        return _tests(recipe_of(problem))
    except ValueError:  # an id that is no recipe's name
        return ""


@functools.lru_cache(maxsize=4096)
def _tests(recipe: Recipe) -> str:
    rng = random.Random(digest(["contract", recipe.name]))
    namespace: dict[str, Any] = {}
    exec(recipe.reference()[HELPER], namespace)
    helper = namespace[HELPER]
    inside, outside = [x for x in _VALUES if helper([x])], [x for x in _VALUES if not helper([x])]
    if not inside or not outside:  # no generated problem; a client's may be
        return ""
    lines = ["def check(candidate):"]
    for count in _CHOSEN:
        xs = rng.choices(inside, k=count) + rng.choices(outside, k=rng.randint(*_OTHERS))
        rng.shuffle(xs)
        lines.append(f"    assert len(candidate({xs})) == {count}")
        lines.append(f"    assert candidate({xs}) == {helper(xs)}")
    return "\n".join([*lines, ""])
