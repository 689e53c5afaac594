"""Checks that ``pipeline_lib``, ``tasks`` and ``flows`` are Symposium's packages and not others with the same names."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

ALL = ("pipeline_lib", "tasks", "flows")


def check_neighbours(*names: str, here: Path | None = None) -> None:
    """Make sure that the packages with these names belong to Symposium.

    A package belongs to Symposium if it is next to a package ``symposium``: in site-packages, in a checkout, or in the
    clone that an experiment runs in.

    Args:
        names: of `ALL`.
        here: a folder that Python searches first, as ``python -m`` does with the current one.

    Raises:
        ImportError: a package is foreign or missing; the message names its folder and says what to do.
    """
    for name in names:
        found = _in(here, name) or _imported(name)
        if found is None or not (found.parent / "symposium/neighbours.py").is_file():
            raise ImportError(
                f"the name {name!r} leads to {found or 'nothing'}, which is not Symposium's: it consists of the "
                f"packages symposium, {', '.join(ALL)}, and needs these names. Rename your own, start from another "
                "folder, or install Symposium into an environment of its own"
            )


def _in(folder: Path | None, name: str) -> Path | None:
    if folder is None:
        return None
    package, module = folder / name, folder / f"{name}.py"
    return package if (package / "__init__.py").is_file() else module if module.is_file() else None


def _imported(name: str) -> Path | None:
    """Return the folder (of a module: the file) that an import of the name leads to."""
    module = sys.modules.get(name)
    origin = getattr(module, "__file__", None)
    if module is None:
        spec = importlib.util.find_spec(name)
        origin = spec.origin if spec is not None else None
    if origin is None:
        return None
    path = Path(origin)
    return path.parent if path.name == "__init__.py" else path
