"""The code of users, which counts as a whole: every file of a top-level package, however it is imported or read.

Nobody has to guess which methods a class calls or what ``import_module(name)`` finds.  Of a module that an import
statement names, comments, docstrings and formatting do not count.  All other files count by their bytes: data, and
texts that end in ``.py``.  If the package reads docstrings or source files, all of its files count by their bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pipeline_lib.identity.modules import imported_modules
from pipeline_lib.identity.syntax import Syntax, SyntaxCache
from pipeline_lib.storage import file_digest


@dataclass(frozen=True, slots=True)
class UserCode:
    """One top-level package or module.

    Attributes:
        files: digest (64 hexadecimal digits) of each file, by name of the module, or by package and file name.
        imports: the modules that its import statements name, its own included.
    """

    files: dict[str, str]
    imports: frozenset[str]


def user_code(name: str, base: Path, entered: Iterable[str], memory: SyntaxCache) -> UserCode:
    """Return the code of a top-level package or module.

    Args:
        name: its name.
        base: its folder; of a module: its path without ending.
        entered: modules of it that are imported from elsewhere.
        memory: cache of parsed files.
    """
    sources, files = _files(name, base)
    parsed: dict[str, Syntax] = {}
    for module, path in sources.items():
        try:
            parsed[module] = memory.of(path)
        except (SyntaxError, ValueError):  # a text that is no Python
            continue
    imports = {
        imported
        for module, syntax in parsed.items()
        for found in syntax.imports
        for imported in imported_modules(found, _package(module, sources[module]))
    }
    reached = {*imports, *entered}
    reached |= {".".join(module.split(".")[:end]) for module in reached for end in range(1, module.count(".") + 1)}
    as_text = any(syntax.reads_source for syntax in parsed.values())
    for module, path in sources.items():
        is_code = module in parsed and module in reached and not as_text
        files[module] = parsed[module].digest if is_code else file_digest(path)
    return UserCode(files, frozenset(imports))


def _files(name: str, base: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Return the Python files by name of the module, and the digests of all other files; hidden ones do not count."""
    if not base.is_dir():
        return {name: base.with_suffix(".py")}, {}
    sources: dict[str, Path] = {}
    others: dict[str, str] = {}
    regular = (base / "__init__.py").is_file()  # else a folder that may hold anything, such as outputs of stages
    for place, folders, names in os.walk(base, followlinks=True):
        folders[:] = sorted(folder for folder in folders if not folder.startswith(".") and folder != "__pycache__")
        for path in [Path(place, file) for file in sorted(names)]:
            below = path.relative_to(base)
            if path.suffix == ".py":
                parts = below.with_suffix("").parts
                sources[".".join([name, *(parts[:-1] if parts[-1] == "__init__" else parts)])] = path
            elif regular and path.suffix != ".pyc" and not path.name.startswith(".") and path.is_file():
                others[f"{name}/{below.as_posix()}"] = file_digest(path)
    return sources, others


def _package(module: str, path: Path) -> str:
    """Return the package from which a module's relative imports start."""
    return module if path.name == "__init__.py" else module.rpartition(".")[0]
