"""What was audited: the reward in words, and a digest that changes whenever the reward does.

Training compares the digest in the audit's result with that of the reward it is about to train on, because an answer
about another reward is no answer.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline_lib.storage import digest

if TYPE_CHECKING:
    from pipeline_lib.settings.environment import Environment


def describe_reward(section: Environment) -> str:
    """Return an environment's reward in words, for example ``philosophers / terms (weights: {'meals': 1.0})``."""
    settings = section.reward.model_dump(mode="json")
    kind = settings.pop("kind")
    told = ", ".join(f"{name}: {value}" for name, value in settings.items() if value is not None)
    return f"'{section.kind} / {kind}'" + (f" ({told})" if told else "")


def reward_digest(section: Environment) -> str:
    """Return the digest (64 hexadecimal digits) of an environment's reward: its settings, and the source it runs.

    The source is that of the module which holds the reward's class and of all that it imports from this project and
    from beside it; comments and docstrings do not count.  It is the same for all arms of an experiment.
    """
    reward = section.reward
    if reward.kind == "custom":
        path = reward.path
    elif section.kind == "philosophers":
        path = "pipeline_lib.environments.philosophers.rewards:Reward"
    else:
        path = "pipeline_lib.environments.rewards:Reward"
    return digest({"settings": reward.model_dump(mode="json"), "source": source_digest(path)})


def source_digest(path: str) -> str:
    """Return the digest of the code behind ``package.module:Class``: its module and what that imports of the project.

    Raises:
        ValueError: there is no such module.
    """
    trees: dict[str, str] = {}
    waiting = [path.partition(":")[0]]
    while waiting:
        name = waiting.pop()
        source = _source(name)
        if source is None:
            if not trees:
                raise ValueError(f"{path}: there is no module {name} with a source file")
            continue
        if name in trees:
            continue
        tree = ast.parse(source.read_bytes(), filename=str(source))
        package = name if source.name == "__init__.py" else name.rpartition(".")[0]
        waiting += _imported(tree, package)
        waiting += [name.rpartition(".")[0]] * ("." in name)
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
                del node.body[0]
        trees[name] = digest(ast.dump(tree))
    return digest(trees)


def _source(name: str) -> Path | None:
    """Return the source file of a module of the project, or None for a library's, a built-in's or no module's.

    Found by path: nothing below the top-level package is imported.
    """
    top, *rest = name.split(".")
    try:
        spec = importlib.util.find_spec(top) if top not in sys.stdlib_module_names else None
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    origin = Path(spec.origin)
    if any(part in ("site-packages", "dist-packages") for part in origin.parts):
        return None
    if not rest:
        return origin
    base = origin.parent.joinpath(*rest)
    return next((path for path in (base / "__init__.py", base.with_suffix(".py")) if path.is_file()), None)


def _imported(tree: ast.AST, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: package.count(".") + 2 - node.level]) if node.level else ""
            module = ".".join(part for part in (base, node.module or "") if part)
            yield from (module, *(f"{module}.{alias.name}" for alias in node.names))
