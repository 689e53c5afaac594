"""The connection to a Ray cluster, whose nodes get the code that this process has."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

_LIBRARY = Path(__file__).parents[1]
_BESIDE = "symposium"  # a package that code of a project's own may import; it insists on having the library beside it


def connect(address: str, project: Path | None = None) -> Any:
    """Return the module ``ray``, connected to a cluster; a connection that this process has already is kept.

    Args:
        address: of the cluster; ``auto`` finds the one this machine belongs to.
        project: a folder that the nodes get beside the library, without what git ignores in it; it is the working
            directory there.

    Raises:
        ConnectionError, RuntimeError: Ray is not installed, there is no cluster, or the folder is too large.
    """
    try:
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise ConnectionError(f"Ray is not installed: pip install 'ray>=2.50' ({error})") from None
    if ray.is_initialized():
        return ray
    with tempfile.TemporaryDirectory() as folder:
        for path in (_LIBRARY, _LIBRARY.with_name(_BESIDE), *project.absolute().iterdir()) if project else ():
            if path.exists() and not (link := Path(folder, path.name)).is_symlink():
                link.symlink_to(path)
        shipped = {"working_dir": folder} if project else {"py_modules": [str(_LIBRARY)]}
        ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING, runtime_env=shipped)
    return ray
