"""Published coding problems (HumanEval, CoopHumanEval and MBPP, from the hub or from a file), and typed ones.

Two layouts are understood, by the fields that a dataset has: HumanEval's (``prompt``, ``test``, ``entry_point`` and,
if given, ``canonical_solution``) and MBPP's (``prompt`` or ``text``, ``code``, ``test_list`` and imports or set-up for
the tests).  What a prompt imports or defines besides the requested function belongs to the problem.  Every
split that the source was published with is pooled; `problems.splitting` deals the problems out, as a file says or anew.

The tests of a problem are split into visible ones and hidden ones, which give the reward.  The unit is a case as the
sandbox counts it: an ``assert`` in the syntax tree that is not constant.  Both parts keep all other statements, so that
every assert has what it needs.  Every case is in exactly one of the parts.

Helper and main agent get the whole problem and their own part of it; neither sees the other's code.  The skeleton shows
the requested function, taken from the syntax tree: it has the parameters of the entry point, not those of another
function that the problem happens to define first.

A person types a problem as a function with a docstring, and asserts below it, which are hidden tests; without any, the
team answers and nothing is run:

    def double_even(xs):
        "Return twice the sum of the even numbers of xs."

    assert double_even([1, 2, 4]) == 12
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

from pipeline_lib.environment_kit.programs import parsed
from pipeline_lib.environments.coding.problem import CodingProblem
from pipeline_lib.environments.coding.settings import DatasetProblems
from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.problems.rows import Fields, Row, list_field, published_problems, python_field, text_field
from pipeline_lib.sandbox import Job
from pipeline_lib.sandbox.tests_source import ALWAYS_TRUE, BadTests, count_cases, is_always_true
from pipeline_lib.storage import digest

HELPER = "aux"

_RULES = (
    "Answer with Python code and nothing else: no explanation, no Markdown fences, no tests, no examples. "
    "What the problem imports or defines is already there."
)


def observations(task: str, function: ast.FunctionDef, examples: Sequence[str] = ()) -> dict[str, str]:
    """Return the observation of each role; of ``function``, the entry point, name and parameters are used.

    ``task`` is the problem as published, code or text, and ``examples`` are visible tests.
    """
    name = function.name
    shown = "\n".join(["Problem:", "", task.strip("\n"), *(["", "For example:", *examples] if examples else [])])
    helper = _skeleton(HELPER, function)
    main = _skeleton(name, function, f"result = {HELPER}({_call(function)})")
    return {
        "helper": (
            "Two programmers solve a problem together without seeing each other's code.\n\n"
            f"{shown}\n\n"
            f"You write the helper function {HELPER}: a part of the work whose result the other programmer's function "
            f"{name} can build on. {name} is not yours to write. {_RULES}\n\n{helper}\n"
        ),
        "main": (
            "Two programmers solve a problem together without seeing each other's code.\n\n"
            f"{shown}\n\n"
            f"You write the function {name}. The other programmer writes a helper function {HELPER}, probably with "
            f"the same parameters; call it where it helps, and do not define it. {_RULES}\n\n{main}\n"
        ),
        "single": (
            f"Solve this problem with two functions.\n\n{shown}\n\n"
            f"Write a helper function {HELPER} that does a part of the work, and the complete function {name}, which "
            f"calls it. {_RULES}\n\n{helper}\n\n{main}\n"
        ),
    }


def _skeleton(name: str, function: ast.FunctionDef, *lines: str) -> str:
    returns = f" -> {ast.unparse(function.returns)}" if function.returns and name != HELPER else ""
    head = f"def {name}({ast.unparse(function.args)}){returns}:"
    return "\n".join([head, "    ...", *(f"    {line}" for line in lines), "    return result"])


def _call(function: ast.FunctionDef) -> str:
    arguments = function.args
    parts = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    if arguments.vararg:
        parts.append(f"*{arguments.vararg.arg}")
    parts += [f"{argument.arg}={argument.arg}" for argument in arguments.kwonlyargs]
    if arguments.kwarg:
        parts.append(f"**{arguments.kwarg.arg}")
    return ", ".join(parts)


#: Hub id and subset of each dataset as published.
HUB = {
    "humaneval": ("openai/openai_humaneval", None),
    "coophumaneval": ("OpenMLRL/CoopHumanEval", None),
    "mbpp": ("google-research-datasets/mbpp", "sanitized"),
}

_HUMANEVAL_FIELDS = ("task_id", "prompt", "test", "entry_point")
_MBPP_FIELDS = ("task_id", "code", "test_list")


def read_dataset(settings: DatasetProblems) -> list[tuple[CodingProblem, Row]]:
    """Return the problems of a dataset with their rows; raises as `published_problems`."""
    make = partial(_problem, settings)
    return list(published_problems(settings, HUB[settings.kind], _name, make))


def solution_jobs(problem: CodingProblem) -> list[Job]:
    """Return the jobs of running a problem's known solution: on its hidden and on its visible tests."""
    code = "\n\n".join(problem.reference.values())
    tests = {problem.id: problem.hidden_tests, f"{problem.id} (visible tests)": problem.visible_tests}
    return [Job(name, code, text, problem.entry_point, problem.prelude) for name, text in tests.items() if text]


def _name(_: int, row: Fields) -> str:
    name = str(row.get("task_id"))
    return name if _is_humaneval(row) or row.get("test_list") is None else f"MBPP/{name}"


def _is_humaneval(row: Fields) -> bool:
    return all(row.get(field) is not None for field in ("test", "entry_point"))


def _problem(settings: DatasetProblems, name: str, row: Fields) -> CodingProblem:
    if _is_humaneval(row):
        return _humaneval_problem(row, settings)
    if row.get("test_list") is not None:
        return _mbpp_problem(name, row, settings)
    raise ProblemsError(
        f"has the fields {', '.join(sorted(row))}; expected {', '.join(_HUMANEVAL_FIELDS)} (HumanEval), or prompt or "
        f"text, {', '.join(_MBPP_FIELDS)} (MBPP)"
    )


def _humaneval_problem(row: Fields, settings: DatasetProblems) -> CodingProblem:
    prompt, name = text_field(row, "prompt"), text_field(row, "entry_point")
    problem, definition = problem_of_prompt(_identifier(row), settings.kind, prompt, name)
    visible, hidden = split_tests(as_check(text_field(row, "test"), name), name, settings.visible_tests)
    solved = row.get("canonical_solution") not in (None, "")
    reference = {name: definition + text_field(row, "canonical_solution")} if solved else {}
    return replace(problem, visible_tests=visible, hidden_tests=hidden, reference=reference)


def problem_of_prompt(identifier: str, source: str, prompt: str, name: str) -> tuple[CodingProblem, str]:
    """Return the problem of a prompt that begins a program, without tests, and the prompt's source from ``name`` on.

    Args:
        identifier: the problem's id, and its family.
        source: where it comes from.
        prompt: imports, further definitions, and the requested function, with or without a body.
        name: that function.

    Raises:
        ProblemsError: the prompt is not Python, or does not define the function.
    """
    tree = parsed(prompt) or python_field(f"{prompt.rstrip()}\n    pass\n", "the prompt")
    function = _definition(tree, name, "the prompt")
    unended = prompt.rpartition("\n")[2].strip()  # a solution goes below the last line, not behind it
    lines = (f"{prompt}\n" if unended else prompt).splitlines(keepends=True)
    first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)]) - 1
    before, after = "".join(lines[:first]), "".join(lines[function.end_lineno or len(lines) :])
    problem = CodingProblem(
        id=identifier,
        source=source,
        family=identifier,
        level=1,
        entry_point=name,
        observations=observations(prompt, function),
        prelude=f"{before.strip()}\n\n{after.strip()}".strip(),
        visible_tests="",
        hidden_tests="",
    )
    return problem, "".join(lines[first:])


def _mbpp_problem(identifier: str, row: Fields, settings: DatasetProblems) -> CodingProblem:
    if not (row.get("prompt") or row.get("text")):
        raise ProblemsError(f"the field prompt (or text) is missing; it has {', '.join(sorted(row))}")
    text = text_field(row, "prompt" if row.get("prompt") else "text")
    code, asserts = text_field(row, "code").replace("\r\n", "\n"), list_field(row, "test_list", str, "texts")
    tree = python_field(code, "the field code")
    name = _called(python_field("\n".join(asserts), "test_list"), tree)
    visible, hidden = split_tests(as_check("\n".join(asserts), name), name, settings.visible_tests)
    has_setup = row.get("test_setup_code") not in (None, "")
    setup = (
        text_field(row, "test_setup_code").strip() if has_setup else ""
    )  # the tests' own: it may make objects of the solution's classes
    function = _definition(tree, name, "the field code")
    task = f"{text.strip()}\nThe function is called {name}."
    _identifier(row)
    return CodingProblem(
        id=identifier,
        source=settings.kind,
        family=identifier,
        level=1,
        entry_point=name,
        observations=observations(task, function, _seen(asserts, visible, name)),
        prelude="\n".join(line for line in list_field(row, "test_imports", str, "texts") if line.strip()),
        visible_tests=f"{setup}\n\n{visible}".lstrip() if visible else "",
        hidden_tests=f"{setup}\n\n{hidden}".lstrip(),
        reference={name: code},
    )


def _seen(asserts: Sequence[str], visible: str, name: str) -> list[str]:
    bodies = [as_check(test, name).partition("\n")[2].rstrip("\n") for test in asserts]
    return [test for test, body in zip(asserts, bodies, strict=True) if body in visible]


def _identifier(row: Fields) -> str:
    """Return the row's id, which MBPP publishes as a number."""
    identifier = row.get("task_id")
    return str(identifier) if isinstance(identifier, int) else text_field(row, "task_id")


def _definition(tree: ast.Module, name: str, what: str) -> ast.FunctionDef:
    definitions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    if not definitions:
        raise ProblemsError(f"{what} does not define the entry point {name!r}")
    return definitions[-1]


def _called(tests: ast.Module, code: ast.Module) -> str:
    """Return the function that the tests call and the code defines."""
    defined: Sequence[str] = [node.name for node in code.body if isinstance(node, ast.FunctionDef)]
    calls = [node.func for node in ast.walk(tests) if isinstance(node, ast.Call)]
    called = {function.id for function in calls if isinstance(function, ast.Name)}
    tested = [name for name in defined if name in called]
    if not tested:
        raise ProblemsError(
            f"the tests call none of the functions that the code defines ({', '.join(defined) or 'none'})"
        )
    return tested[-1]


_FIRST_ASSERT = re.compile(r"^assert\b", re.MULTILINE)
_FUNCTION = re.compile(r"^def (\w+)", re.MULTILINE)


def typed_problem(text: str) -> CodingProblem:
    """Return the problem; the last function that is defined is the one asked for.

    Raises:
        ProblemsError: there is no function, the text is not Python, or the asserts test nothing.
    """
    first_assert = _FIRST_ASSERT.search(text)
    prompt, tests = (text[: first_assert.start()], text[first_assert.start() :]) if first_assert else (text, "")
    functions = _FUNCTION.findall(prompt)
    if not functions:
        raise ProblemsError(
            "the problem has no function; type `def name(arguments):` with a docstring that says what it does"
        )
    problem, _ = problem_of_prompt(f"typed/{digest([text])[:8]}", "typed", f"{prompt.rstrip()}\n", functions[-1])
    if not tests.strip():
        return problem
    python_field(tests, "the text after the first assert")
    _, hidden = split_tests(as_check(tests, problem.entry_point), problem.entry_point, 0)
    return replace(problem, hidden_tests=hidden)


def as_check(source: str, entry_point: str) -> str:
    """Return tests as ``def check(candidate)``; bare asserts on ``entry_point`` are put into such a function.

    Raises:
        ProblemsError: the source does not parse.
    """
    tree = _parse(source)
    if any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in tree.body):
        return source
    renamed = _Renamed(entry_point).visit(tree)
    body = "\n".join(ast.unparse(node) for node in renamed.body) or "pass"
    return "def check(candidate):\n" + "\n".join(f"    {line}" for line in body.splitlines()) + "\n"


def split_tests(source: str, entry_point: str, visible: int) -> tuple[str, str]:
    """Return the visible tests, at most the first ``visible`` cases, and the hidden ones, which are never empty.

    Raises:
        ProblemsError: the source does not parse or has no case.
    """
    tree = _parse(source)
    cases = [number for number, node in enumerate(_asserts(tree)) if _is_case(node, entry_point)]
    if not cases:
        raise ProblemsError("the tests contain no assert that a program could fail")
    seen = cases[: min(visible, len(cases) - 1)]
    if not seen:
        return "", source
    hidden = [number for number in cases if number not in seen]
    return _keep(source, seen), _keep(source, hidden)


def _parse(source: str) -> ast.Module:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise ProblemsError(f"the tests do not parse: {error}") from None
    for node in _asserts(tree):
        if is_always_true(node):
            raise ProblemsError(f"the tests, line {node.lineno}: {ALWAYS_TRUE}")
    return tree


def _asserts(tree: ast.AST) -> list[ast.Assert]:
    asserts = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    return sorted(asserts, key=lambda node: (node.lineno, node.col_offset))


def _is_case(node: ast.Assert, entry_point: str) -> bool:
    try:
        return count_cases(ast.unparse(node), entry_point) == 1
    except BadTests:
        return False


def _keep(source: str, numbers: Collection[int]) -> str:
    tree = ast.parse(source)
    dropped = {id(node) for number, node in enumerate(_asserts(tree)) if number not in numbers}
    return ast.unparse(ast.fix_missing_locations(_Without(dropped).visit(tree))) + "\n"


class _Without(ast.NodeTransformer):
    """Replaces some asserts by ``pass``, which keeps a block from becoming empty."""

    def __init__(self, dropped: set[int]) -> None:
        self.dropped = dropped

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        return ast.copy_location(ast.Pass(), node) if id(node) in self.dropped else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        self.generic_visit(node)
        node.body = [child for child in node.body if not isinstance(child, ast.Pass)] or [ast.Pass()]
        return node


class _Renamed(ast.NodeTransformer):
    """Replaces the name of the tested function by ``candidate``."""

    def __init__(self, entry_point: str) -> None:
        self.entry_point = entry_point

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.copy_location(ast.Name("candidate", node.ctx), node) if node.id == self.entry_point else node
