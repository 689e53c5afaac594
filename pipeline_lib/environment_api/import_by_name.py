"""Import code that settings name, after removing bytecode that is older than its source.

This uses the same check as for the project's own packages (`pipeline_lib.bytecode`), for the whole folder that contains
the module, since the module may import others from there.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import os
import sys
from pathlib import Path
from types import ModuleType

from pipeline_lib.bytecode import forget_old_bytecode_of

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
