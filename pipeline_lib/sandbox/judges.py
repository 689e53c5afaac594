"""The judges of this process, and their parent (`parent`), which is asked for them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline_lib.sandbox.backend import SandboxUnavailable

_ROOT = str(Path(__file__).parents[2])
_START = f"import sys; sys.path.insert(0, {_ROOT!r}); from pipeline_lib.sandbox.parent import main; main()"
_START_S = 60.0
_END_S = 20.0  # a parent that takes longer to end is killed
_STARTS = 5  # one that is killed while it starts says nothing about the machine
LONGEST = 1 << 20  # bytes of a message


class Judges:
    """The judges of this process.

    Args:
        config: ``path``, where modules are found, and the configuration of `judge.serve`.

    Raises:
        SandboxUnavailable: their parent does not start; the message says why.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = json.dumps(config).encode()
        self._lock = threading.Lock()
        self._closed = False
        self._start()

    @property
    def parent(self) -> int:
        """Return the process id of their parent."""
        return self._process.pid

    def fork(self, slot: int, jails: Sequence[str]) -> socket.socket:
        """Return the connection to a new judge, which is closed at once if none can be forked.

        Args:
            slot: its number.
            jails: kinds of jail in the order to try them.

        Raises:
            SandboxUnavailable: the parent had ended, and does not start again.
        """
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            if self._closed:
                return ours
            request = json.dumps(["fork", slot, jails]).encode()
            try:
                socket.send_fds(self._connection, [request], [theirs.fileno()])
            except OSError:
                self._end()
                self._start()
                socket.send_fds(self._connection, [request], [theirs.fileno()])
        return ours

    def kill(self, pid: int) -> None:
        """Kill a judge that is stuck."""
        with self._lock, suppress(OSError):
            self._connection.send(json.dumps(["kill", pid]).encode())

    def close(self) -> None:
        """End all judges and what they have started."""
        with self._lock:
            self._closed = True
            self._end()

    def _start(self) -> None:
        for left in reversed(range(_STARTS)):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._process = subprocess.Popen(
                    [
                        sys.executable,
                        "-S",
                        "-s",
                        "-P",
                        "-B",
                        "-c",
                        _START.replace("main()", f"main({theirs.fileno()})"),
                    ],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    env=_environment(),
                    start_new_session=True,
                )
            self._connection = ours
            ours.settimeout(_START_S)
            reason = "the parent of the judges ended while starting"
            try:
                ours.send(self._config)
                answer = ours.recv(LONGEST)
                if answer == b"ready":
                    return
                reason = answer.decode() or reason
            except TimeoutError:
                reason = f"the parent of the judges is not ready after {_START_S:g} s"
            except OSError:
                pass  # it has ended
            self._end()
            if self._process.returncode != -signal.SIGKILL or not left:
                raise SandboxUnavailable(reason)

    def _end(self) -> None:
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)  # a fork of this process may have the descriptor, too
        self._connection.close()
        try:
            self._process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _environment() -> dict[str, str]:
    """Return the environment of the judges: this process's (for DOCKER_HOST and the like) without Python's settings."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    # Each thread takes address space, which is limited in judges.
    few = {"MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return ours | few | {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
