"""Where the source of a module is, by its name; nothing below the top-level package is imported."""

from __future__ import annotations

import functools
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline_lib.identity.syntax import Import

OWN = ("pipeline_lib", "tasks", "flows")
"""Packages of this project, all in one folder."""

PUBLIC, BEHIND = "symposium", "pipeline_lib.text_task.task"
"""The package that users import, and the module with the names that environments use from it."""


def source_of(name: str, installed: bool = False) -> Path | None:
    """Return the source file of a module of the project; None for modules of libraries, built-in and unknown ones.

    A module belongs to the project if its top-level package is one of `OWN`, or is outside the interpreter's folders.
    With ``installed``, modules in these folders are found as well.
    """
    top, *rest = name.split(".")
    base = top_level(top, installed)
    if base is None:
        return None
    if not rest:
        return _file(base / "__init__.py") or _file(base.with_suffix(".py"))
    folder = base.joinpath(*rest)
    return _file(folder / "__init__.py") or _file(folder.with_suffix(".py"))


def top_level(name: str, installed: bool = False) -> Path | None:
    """Return the folder of a top-level package (of a module: its path without ending), or None; as `source_of`."""
    found = _located(name, tuple(sys.path))
    if found is None or installed or (name in OWN and found.parent == Path(__file__).parents[2]):
        return found  # a wheel may have installed our own
    return None if any(found.is_relative_to(folder) for folder in _library_folders()) else found


def modules_below(package: str) -> list[str]:
    """Return the names of all modules of a package of the project, its own included."""
    base = source_of(package)
    assert base is not None
    found = []
    for path in base.parent.rglob("*.py"):
        parts = path.relative_to(base.parent).with_suffix("").parts
        found.append(".".join([package, *(parts[:-1] if parts[-1] == "__init__" else parts)]))
    return found


def imported_modules(found: Import, package: str) -> Iterator[str]:
    """Yield every module that an import statement of a module in ``package`` may load."""
    base = ".".join(package.split(".")[: package.count(".") + 2 - found.level]) if found.level else ""
    module = ".".join(part for part in (base, found.module) if part)
    if module == PUBLIC:
        yield BEHIND
        return
    yield module
    for name in found.names:  # a name may be a module of its own
        if name == "*":  # as ``__all__`` says
            yield from modules_below(module) if source_of(module) else ()
        elif source_of(f"{module}.{name}"):
            yield f"{module}.{name}"


@functools.lru_cache(maxsize=512)
def _located(name: str, path: tuple[str, ...]) -> Path | None:
    if not name or name in sys.builtin_module_names:
        return None
    spec = _spec(name)
    if spec is None or spec.origin is None:
        places = list(spec.submodule_search_locations or ()) if spec else []  # a package without __init__.py
        return Path(places[0]) if places else None
    origin = Path(spec.origin)
    if origin.suffix != ".py":
        return None
    return origin.parent if origin.name == "__init__.py" else origin.with_suffix("")


def _spec(name: str) -> Any:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None


@functools.cache
def _library_folders() -> tuple[Path, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {Path(sysconfig.get_path(name)) for name in names}
    folders |= {Path(entry) for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")}
    return tuple(folders | {folder.resolve() for folder in folders})


def _file(path: Path) -> Path | None:
    return path if path.is_file() else None
