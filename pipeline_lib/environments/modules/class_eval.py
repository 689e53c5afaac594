"""ClassEval: classes whose methods are shared among the agents of a team, from the hub or a file as published.

Every agent is told the class's frame, its own methods with their descriptions, and of the other methods the signatures.
The unit tests of a part are the test classes of its methods; the system tests are all test classes.  Both are
`unittest` classes, and every test method is one case.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline_lib.environments.modules.generated import LOWER, TOP
from pipeline_lib.environments.modules.problem import SINGLE, ModulesProblem
from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.problems.rows import Row, list_field, published_problems, python_field, text_field

if TYPE_CHECKING:
    from pipeline_lib.environments.modules.settings import ClassProblems


HUB = "FudanSELab/ClassEval"

_TEXTS = ("task_id", "skeleton", "solution_code", "test", "class_name", "class_constructor")
_TEXTS_OF_METHODS = ("method_name", "method_description", "test_class")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

_LOAD = """\
def load_tests(loader, tests, pattern):
    return loader.suiteClass(map(loader.loadTestsFromTestCase, [{classes}]))
"""
_RULES = (
    "Answer with these methods as Python code and nothing else: no explanation, no tests. They may call the others."
)


def read_classes(settings: ClassProblems) -> list[tuple[ModulesProblem, Row]]:
    """Return the classes with their rows; raises as `published_problems`."""
    name_of, agents = (lambda _, row: str(row.get("task_id"))), settings.modules
    return list(published_problems(settings, (HUB, None), name_of, lambda _, row: class_problem(row, agents)))


def class_problem(row: Mapping[str, Any], agents: int) -> ModulesProblem:
    """Return the problem of a row.

    Args:
        row: a task in the published format.
        agents: number of agents; a class with fewer methods has one for each method.

    Raises:
        ProblemsError: a field is missing or cannot be used.
    """
    for field in _TEXTS:
        text_field(row, field)
    name, infos = row["class_name"], list_field(row, "methods_info", dict, "methods")
    if not infos:
        raise ProblemsError(f"the field methods_info is missing; it has {', '.join(sorted(row))}")
    for number, info in enumerate(infos):
        for field in _TEXTS_OF_METHODS:
            text_field(info, field, f"methods_info[{number}].")
    methods = list(dict.fromkeys(info["method_name"] for info in infos))
    solution, tests = (python_field(row[field], f"the field {field}") for field in ("solution_code", "test"))
    owned = share(methods, agents)
    units = {part: _tests_of(tests, part_methods, infos) for part, part_methods in owned.items()}
    return ModulesProblem(
        id=row["task_id"],
        source="classeval",
        family=row["task_id"],
        level=1,
        layout="class",
        entry_point=name,
        parts=tuple(owned),
        needs={part: tuple(other for other in owned if other != part) for part in owned},
        defines=owned,
        observations=_observations(row, owned),
        unit_tests=units,
        system_tests=ast.unparse(tests),
        references=(_reference(solution, name, owned),),
        prelude=_frame(solution, name, methods),
    )


def share(methods: Sequence[str], agents: int) -> dict[str, tuple[str, ...]]:
    """Return the methods of each agent: as many as possible equally, in their order."""
    count = min(agents, len(methods))
    parts = (*LOWER[: count - 1], TOP)
    ends = [round(len(methods) * number / count) for number in range(count + 1)]
    return {part: tuple(methods[ends[n] : ends[n + 1]]) for n, part in enumerate(parts)}


def _class(tree: ast.Module, name: str) -> ast.ClassDef:
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    if len(classes) != 1:
        raise ProblemsError(f"the field solution_code defines the class {name} {len(classes)} times; it must be once")
    return classes[0]


def _frame(solution: ast.Module, name: str, methods: Sequence[str]) -> str:
    """Return the solution without the methods of its class, except the constructor and special ones."""
    whole = _class(solution, name)
    body = [node for node in whole.body if not isinstance(node, _FUNCTIONS) or _is_framed(node.name, methods)]
    body = body or [ast.Pass()]
    made = ast.ClassDef(whole.name, whole.bases, whole.keywords, body, whole.decorator_list)
    statements = [made if node is whole else node for node in solution.body]
    return ast.unparse(ast.fix_missing_locations(ast.Module(statements, [])))


def _observations(row: Mapping[str, Any], owned: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Return what each agent is told, and a single agent; not all published texts are Python, so they are quoted."""
    described = {info["method_name"]: info["method_description"] for info in row["methods_info"]}
    imports = list_field(row, "import_statement", str, "texts")
    head = "\n".join([*imports, "", row["class_constructor"].rstrip()]).strip()
    about = textwrap.dedent(str(row.get("class_description") or "")).strip().strip('"').strip()
    told = {}
    for part, part_methods in owned.items():
        other_methods = [name for methods in owned.values() for name in methods if name not in part_methods]
        others = [described[name].strip().partition("\n")[0] for name in other_methods]
        told[part] = (
            "Several programmers write the methods of one class without seeing each other's code.\n\n"
            f"{about}\n\n{head}\n\n"
            + "".join(f"    {line}\n" for line in ("# Others write:", *others))
            + "\n    # You write:\n"
            + "\n\n".join(f"    {described[name].strip()}" for name in part_methods)
            + f"\n\n{_RULES}\n"
        )
    told[SINGLE] = f"Complete this class. Answer with Python code and nothing else.\n\n{row['skeleton'].strip()}\n"
    return told


def _tests_of(tests: ast.Module, methods: Sequence[str], infos: Sequence[Mapping[str, str]]) -> str:
    """Return the tests' source such that ``unittest`` loads the test classes of these methods only."""
    defined = {node.name for node in ast.walk(tests) if isinstance(node, ast.ClassDef)}
    names = list(dict.fromkeys(info["test_class"] for info in infos if info["method_name"] in methods))
    names = [name for name in names if name in defined]
    if not names:
        raise ProblemsError(f"the field test has no test class of {', '.join(methods)}")
    return f"{ast.unparse(tests)}\n\n\n{_LOAD.format(classes=', '.join(names))}"


def _is_framed(method: str, described: Collection[str]) -> bool:
    """Return whether a method belongs to the frame: no agent is told about special methods without a description."""
    return method == "__init__" or (method.startswith("__") and method.endswith("__") and method not in described)


def _reference(solution: ast.Module, name: str, owned: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Return the methods of each part; further methods of the solution belong to the last one."""
    described = {method for methods in owned.values() for method in methods}
    functions = [node for node in _class(solution, name).body if isinstance(node, _FUNCTIONS)]
    further = {node.name for node in functions if node.name not in described and not _is_framed(node.name, described)}
    written = {part: {*methods, *(further if part == TOP else ())} for part, methods in owned.items()}
    return {
        part: "\n\n".join(ast.unparse(node) for node in functions if node.name in methods) + "\n"
        for part, methods in written.items()
    }
