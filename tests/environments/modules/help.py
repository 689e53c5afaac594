"""Generated problems, and the reward of a joint program in plain Python."""

import sys
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from pipeline_lib.environments.modules.generated import Design, generate, make_problem
from pipeline_lib.environments.modules.problem import ModulesProblem
from pipeline_lib.environments.modules.settings import GeneratedModules

#: One design for each shape of graph.
DESIGNS = (
    "2/even/times3/sum",
    "2/over3+odd/times4/half",
    "3/odd+plus5/times4+times3/sum",
    "2/even+odd+over2/times3/rest",
    "3/even+plus3+times4/times2+minus7/sum",
    "4/even+plus3+squared/times2+minus7+negated/sum",
)


@cache
def problem(design: str) -> ModulesProblem:
    made = make_problem(Design.parse(design), 4, 6)
    assert made is not None
    return made


@cache
def generated(modules: int) -> dict[str, list[ModulesProblem]]:
    sizes = {"train": 24, "validation": 4, "test": 8}
    return generate(GeneratedModules(modules=modules, levels=tuple(range(1, modules)), sizes=sizes))


def plain_passed(problem: ModulesProblem, sources: Mapping[str, str], top: str, tests: str) -> float:
    """Return the share of the asserts that hold for modules put into ``sys.modules`` of this process: no jail, no hook.

    The modules of ``sources`` must come in the order in which they import each other.
    """
    package = types.ModuleType("app")
    package.__path__ = []
    known = {"app": package}
    sys.modules["app"] = package
    try:
        for name in (name for name in problem.parts if name in sources):
            module = types.ModuleType(f"app.{name}")
            sys.modules[f"app.{name}"] = known[f"app.{name}"] = module
            setattr(package, name, module)
            try:
                exec(sources[name], vars(module))
            except Exception:
                del sys.modules[f"app.{name}"]
                delattr(package, name)
        held = [_holds(line, getattr(getattr(package, top, None), "run", None)) for line in asserts(tests)]
    finally:
        for name in known:
            sys.modules.pop(name, None)
    return sum(held) / len(held)


def asserts(tests: str) -> list[str]:
    return [line.strip() for line in tests.splitlines() if line.strip().startswith("assert")]


def _holds(line: str, candidate: Callable[..., Any] | None) -> bool:
    try:
        exec(line, {"candidate": candidate})
    except Exception:
        return False
    return True
