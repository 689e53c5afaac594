"""A small project with a real DVC pipeline, whose stages count instead of learning; and people who use it."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from tests.flows.project import call, environment, lay_tracking

FILES = Path(__file__).parent / "toy"


CONFIG = '[cache]\n    type = "hardlink,copy"\n[core]\n    autostage = true\n'


def make_toy(folder: Path, empty: Path, tracked: Path) -> Path:
    """Make the toy project in ``folder`` of an empty repository, with one commit, and a database of MLflow."""
    shutil.copytree(empty, folder)
    shutil.copytree(FILES, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / ".gitignore").write_text("/.symposium/\n__pycache__/\n/out/\n/models/\n")
    (folder / ".dvc/config").write_text(CONFIG)
    (folder / ".dvcignore").write_text("__pycache__\n.symposium\n")
    commit(folder, "start")
    lay_tracking(folder, tracked)
    return folder


def commit(folder: Path, message: str) -> None:
    """Commit everything."""
    call(folder, "git", "add", "-A")
    call(folder, "git", "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-qm", message)


@contextlib.contextmanager
def started(folder: Path, *command: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command of the project in the background, in a process group of its own; nothing of it stays behind."""
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=folder,
        env={**environment(), "PYTHONUNBUFFERED": "1", **variables},
        stdout=(folder.parent / f"{folder.name}.log").open("w"),
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        family = (
            [process.pid, *(child.pid for child in psutil.Process(process.pid).children(recursive=True))]
            if process.poll() is None
            else []
        )
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def words(folder: Path) -> str:
    """Return what the command run by `started` has printed so far."""
    return (folder.parent / f"{folder.name}.log").read_text()


def wait_for(condition: Callable[[], object], what: str | Callable[[], object], timeout_s: float = 240.0) -> None:
    """Wait until ``condition()`` is true; fail with ``what``, as it is then, if that takes too long."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"waited in vain: {what if isinstance(what, str) else what()}"
        time.sleep(0.1)


def still_there(folder: Path) -> list[str]:
    """Return the command lines of all processes that work in a project."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            inside = Path(process.cwd()).is_relative_to(folder)
            if inside and process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid():
                found.append(" ".join(process.cmdline()))
    return found
