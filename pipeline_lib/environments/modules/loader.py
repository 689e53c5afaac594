"""The source of a program that consists of several files: a package in the memory of its own process.

The text of the program contains the files and an import hook that serves them, so nothing is written to a disk, and the
sandbox runs it like any other program.  Files are imported by the first call, in the order in which they import each
other.  All files of a program share its process: what one of them does to the others counts as what the program does.
The tests are in another process.
"""

from __future__ import annotations

from collections.abc import Mapping

#: The package that the files of a program are in.
PACKAGE = "app"

_PROGRAM = '''\
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec


class Files:
    """Serves a package whose modules are texts."""

    def __init__(self, package, sources):
        self.package, self.sources = package, sources

    def find_spec(self, name, path=None, target=None):
        package, _, module = name.partition(".")
        if package == self.package and (not module or module in self.sources):
            return ModuleSpec(name, self, is_package=not module)
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        name = module.__name__.partition(".")[2]
        if name:
            exec(compile(self.sources[name], name + ".py", "exec", dont_inherit=True), module.__dict__)


sys.meta_path.insert(0, Files({package!r}, {sources!r}))


def {function}(*args, **kwargs):
    return import_module({top!r}).{function}(*args, **kwargs)
'''


def package_program(sources: Mapping[str, str], top: str, function: str, package: str = PACKAGE) -> str:
    """Return a program with a package in memory.

    Args:
        sources: text of each module by name.
        top: the module whose function is called.
        function: its name, and that of the program's own function, which passes calls on.
        package: name of the package.
    """
    return _PROGRAM.format(package=package, sources=dict(sources), top=f"{package}.{top}", function=function)
