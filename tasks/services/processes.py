"""Start child processes that are never left over: each leads a process group, and ends with this process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import psutil

from tasks.services.end_with_parent import STOP_S


def start(
    command: Sequence[str], environment: Mapping[str, str], cwd: Path, output: IO[Any] | int
) -> subprocess.Popen[bytes]:
    """Start a command in a process group of its own, tied to the life of this process.

    Args:
        command: program and arguments.
        environment: all variables of the child.
        cwd: where it runs.
        output: where its stdout and stderr go.
    """
    wrapper = [sys.executable, "-S", str(Path(__file__).with_name("end_with_parent.py")), str(os.getpid())]
    return subprocess.Popen(
        [*wrapper, *command],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=dict(environment),
        cwd=cwd,
        start_new_session=True,  # Ctrl-C in the terminal reaches us alone, and we end it in order
    )


def stop(process: subprocess.Popen[bytes], timeout_s: float = STOP_S) -> None:
    """End a process that `start` started and everything below it: politely first, by force after ``timeout_s`` s."""
    members = family(process.pid)
    _signal(process.pid, members, signal.SIGTERM)
    end = time.monotonic() + timeout_s
    while time.monotonic() < end and (process.poll() is None or _alive(members)):
        members |= family(process.pid)
        time.sleep(0.05)
    if process.poll() is None or _alive(members):
        _signal(process.pid, members, signal.SIGKILL)
    process.wait()


def family(pid: int) -> set[psutil.Process]:
    """Return a process and all below it, also those that have left its group."""
    with contextlib.suppress(psutil.NoSuchProcess):
        head = psutil.Process(pid)
        return {head, *head.children(recursive=True)}
    return set()


def _alive(family: set[psutil.Process]) -> bool:
    return any(_runs(member) for member in family)


def _runs(member: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return member.is_running() and member.status() != psutil.STATUS_ZOMBIE
    return False


def _signal(group: int, family: set[psutil.Process], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError, PermissionError):
            if os.getpgid(member.pid) != group:
                member.send_signal(number)
