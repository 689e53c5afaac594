"""Find an environment by the ``kind`` in the settings, and import code that settings name.

A kind is one of three: the name of a folder or module in `pipeline_lib.environments`; a name under which an installed
package provides its environment (entry points of the group ``symposium.environments``); or an import path,
``my_package.my_task`` or ``my_package.my_task:Class``.  The module, or the module ``task`` in the package, contains one
subclass of `Task`.

Before an import, bytecode that is older than its source is removed.  This uses the same check as for the project's own
packages (`pipeline_lib.bytecode`), for the whole folder that contains the module, since the module may import others
from there.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import itertools
import os
import pkgutil
import sys
from pathlib import Path
from types import ModuleType

from pipeline_lib.bytecode import forget_old_bytecode_of
from pipeline_lib.environment_api.task import Task

_LIBRARIES = {"site-packages", "dist-packages", "node_modules"}
_MAX_FOLDERS = 5_000  # a module next to a large data folder must not cost minutes


def import_by_name(name: str) -> ModuleType:
    """Import the module ``name`` if necessary and return it.

    Raises:
        ImportError: the module does not exist, or its import fails.
    """
    if name not in sys.modules:
        spec = importlib.util.find_spec(name.partition(".")[0])
        if spec is not None and spec.origin is not None:
            origin = Path(spec.origin)
            folder = origin.parent.parent if origin.name == "__init__.py" else origin.parent
            if not _LIBRARIES & set(folder.parts):
                _forget_below(folder)
    return importlib.import_module(name)


def _forget_below(folder: Path) -> None:
    for place, folders, files in itertools.islice(os.walk(folder), _MAX_FOLDERS):
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__")) and name not in _LIBRARIES]
        forget_old_bytecode_of(Path(place, name) for name in files if name.endswith(".py"))


BUILT_IN = "pipeline_lib.environments"
GROUP = "symposium.environments"


class UnknownEnvironmentError(ValueError):
    """The environment does not exist, or is not a `Task`; the message lists the known ones."""


def names() -> tuple[str, ...]:
    """Return the names of the library's environments and of installed ones."""
    folder = importlib.import_module(BUILT_IN).__path__
    built_in = [module.name for module in pkgutil.iter_modules(folder)]
    return tuple(dict.fromkeys([*sorted(built_in), *sorted(_installed())]))


def find(kind: str) -> Task:
    """Return the environment called ``kind``; raises UnknownEnvironmentError if it does not exist."""
    return task_class(kind)()


@functools.cache
def task_class(kind: str) -> type[Task]:
    """Return the class of the environment called ``kind``; raises as `find`."""
    installed = _installed()
    if kind in installed:
        place = installed[kind]
    elif "." in kind or ":" in kind:
        place = kind
    elif kind in names():
        place = f"{BUILT_IN}.{kind}"
    else:
        raise UnknownEnvironmentError(
            f"there is no environment {kind!r}; accepted: {', '.join(names())}, or an import path such as "
            "my_package.my_task"
        )
    module_name, _, class_name = place.partition(":")
    try:
        module = import_by_name(module_name)
        if not class_name and hasattr(module, "__path__") and importlib.util.find_spec(f"{module_name}.task"):
            module = importlib.import_module(f"{module_name}.task")
    except ImportError as error:
        raise UnknownEnvironmentError(
            f"cannot import the environment {kind!r}: {error}; expected 'package.module' or 'package.module:Class'"
        ) from error
    if class_name:
        candidates = [getattr(module, class_name, None)]
    else:
        candidates = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
    classes = [value for value in candidates if isinstance(value, type) and issubclass(value, Task)]
    if len(classes) != 1:
        held = ", ".join(value.__name__ for value in classes) or "none"
        raise UnknownEnvironmentError(
            f"{place} is not an environment: {module.__name__} must contain one subclass of "
            f"pipeline_lib.environment_api.task.Task (it contains: {held}), or kind must name the "
            f"class, as in {module.__name__}:Class"
        )
    return classes[0]


def _installed() -> dict[str, str]:
    """Return the import paths of the environments of installed packages, by name."""
    return {point.name: point.value for point in importlib.metadata.entry_points(group=GROUP)}
