"""Mark everything that a broker creates on the machine with its identity, and remove the remains of dead brokers."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

PREFIX = "symposium-sandbox-"


def identity(pid: int) -> str | None:
    """Return process id and start time of a living process as ``pid-ticks``, None if there is none.

    A process id may be reused; together with the start time it is unique.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else f"{pid}-{fields[19]}"


def alive(owner: str) -> bool:
    """Return whether the process with the identity ``owner`` is still alive."""
    pid = owner.partition("-")[0]
    return pid.isdigit() and identity(int(pid)) == owner


def make_run_folder() -> Path:
    """Return a new folder for this process's jails, after removing those of dead processes."""
    base = Path(tempfile.gettempdir())
    for folder in base.glob(f"{PREFIX}*"):
        owner = folder.name.removeprefix(PREFIX).rpartition("-")[0]
        with suppress(FileNotFoundError):  # another broker may remove it at the same time
            if not alive(owner) and folder.stat().st_uid == os.geteuid():
                shutil.rmtree(folder, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{identity(os.getpid())}-", dir=base))
    folder.chmod(0o711)  # programs run as other users and must reach their own folder, but not list this one
    return folder
