"""Lets a process that has the libraries in memory do the work of this one (`tasks.services.preloaded`).

This process stays as its stand-in: it passes signals on, ends with DVC, and ends as the other one ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.services.tether import end_with_dvc

ADDRESS = "SYMPOSIUM_PRELOADED"
"""Environment variable: path of the socket of the process that has the libraries in memory."""
ITSELF = "loads the libraries itself"
"""What a stage says of itself that is not handed over, although there is a process with the libraries."""

# What the libraries do not read when they are imported: ours, DVC's and the shell's variables, and those that our own
# tracking sets in a chain while its stages come and go.
_HARMLESS = ("SYMPOSIUM_", "DVC_", "MLFLOW_HTTP_REQUEST_", "MLFLOW_TRACKING_URI")
_SHELL = {"PATH", "PWD", "OLDPWD", "SHLVL", "_"}
_LENGTH = struct.Struct("!I")
_FORWARDED = (signal.SIGINT, signal.SIGTERM)


def hand_over() -> None:
    """Let a preloaded process be this program, ``python -m flows.<stage>``, and end as it ends.

    Returns if there is no such process, or if it has other libraries in memory than this one would: then this process
    goes on itself.  To be called before the libraries are imported.
    """
    address = os.environ.pop(ADDRESS, "")
    if not address or sys.argv[0] != "-m":  # "-m": Python is still looking for the module that is to be run
        return
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(address_in(Path(address)))
            request = {
                "module": sys.orig_argv[sys.orig_argv.index("-m") + 1],
                "arguments": sys.argv[1:],
                "folder": str(Path.cwd()),
                "environment": dict(os.environ),
            }
            send(server, request, descriptors=(0, 1, 2))
            answer, _ = receive(server)
        except (OSError, ValueError):
            return
        if not answer["pid"]:
            sys.stderr.write(
                f"note: this stage {ITSELF}, since another {answer['differ']} was set when they were loaded\n"
            )
            return
        sys.exit(_stand_in(server, answer["pid"]))


def _stand_in(server: socket.socket, pid: int) -> int:
    """Pass signals on until the other process has ended; return its status."""

    def forward(number: int, _frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    for number in _FORWARDED:
        signal.signal(number, forward)
    end_with_dvc()
    try:
        status = int(receive(server)[0]["status"])
    except (OSError, ValueError):
        sys.stderr.write("error: the process that did this stage's work is gone; the same command continues\n")
        return 1
    return status if status >= 0 else 128 - status


def differing(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Return the variables because of which libraries imported in one environment may be others than in the other."""
    return sorted(
        name
        for name in ours.keys() | theirs.keys()
        if ours.get(name) != theirs.get(name) and not name.startswith(_HARMLESS) and name not in _SHELL
    )


def address_in(path: Path) -> str:
    """Return an address of a socket's path that is short enough, however long the path is (the kernel takes 107 bytes).

    The folder stays open for the life of the process.
    """
    folder = os.open(path.parent, os.O_DIRECTORY | os.O_CLOEXEC)
    return f"/proc/self/fd/{folder}/{path.name}"


def send(to: socket.socket, message: Mapping[str, Any], descriptors: tuple[int, ...] = ()) -> None:
    """Send a message as JSON, with open files."""
    content = json.dumps(message).encode()
    socket.send_fds(to, [_LENGTH.pack(len(content))], descriptors)
    to.sendall(content)


def receive(sender: socket.socket, descriptors: int = 0) -> tuple[dict[str, Any], list[int]]:
    """Return a message and the open files that came with it.

    Raises:
        ValueError: the sender is gone, or has sent something else.
    """
    head, files, _, _ = socket.recv_fds(sender, _LENGTH.size, descriptors)
    if len(head) < _LENGTH.size or len(files) != descriptors:
        raise ValueError("no message")
    (left,) = _LENGTH.unpack(head)
    content = b""
    while len(content) < left:
        part = sender.recv(left - len(content))
        if not part:
            raise ValueError("half a message")
        content += part
    return json.loads(content), list(files)
