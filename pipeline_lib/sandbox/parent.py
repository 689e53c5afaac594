"""The parent of the judges: a small process that forks them, and with which they end.

A trainer with gigabytes of memory is never forked.  It starts this process once and asks it for a judge per slot; if it
dies, its judges die with it, and the next request starts a new one.  When the trainer ends, everything ends, and the
folder and the containers of all jails are removed.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import shutil
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from typing import Any

from pipeline_lib.sandbox import judge
from pipeline_lib.sandbox.docker_jail import remove_containers
from pipeline_lib.sandbox.judges import LONGEST
from pipeline_lib.sandbox.runtime import make_run_folder

_END_S = 3.0  # a judge that takes longer to end is killed
_IGNORED_BY_PYTHON = frozenset({signal.SIGPIPE, signal.SIGXFSZ})
_STACK = 8 << 20  # bytes; also of the threads of all processes that are started later
_LIMITS = ("AS", "CPU", "DATA", "FSIZE", "NOFILE", "NPROC")


def reset() -> None:
    """Give this process the usual umask and signal handling, and the soft limits that its hard limits allow."""
    os.umask(0o022)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - _IGNORED_BY_PYTHON:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    for name in _LIMITS:
        kind = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (hard, hard))
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (_STACK if hard < 0 else min(_STACK, hard), hard))


def main(descriptor: int) -> None:
    """Fork judges for whoever is connected, until that ends; the first message is the configuration."""
    reset()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    connection = socket.socket(fileno=descriptor)
    config = json.loads(connection.recv(LONGEST))
    sys.path.extend(config["path"])
    try:
        config["run_folder"] = str(make_run_folder())
    except OSError as error:
        connection.send(f"it can make no temporary folder ({error}); let TMPDIR name a folder with space".encode())
        return
    docker = "docker" in config["jails"]
    if docker:
        remove_containers(mine=False)  # and let judges share the memory of the Docker SDK
    judges: set[int] = set()
    try:
        connection.send(b"ready")
        _serve(connection, config, judges)
    finally:
        _end(judges)
        shutil.rmtree(config["run_folder"], ignore_errors=True)
        if docker:
            remove_containers(mine=True)


def _serve(connection: socket.socket, config: dict[str, Any], judges: set[int]) -> None:
    client = os.getppid()
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    while os.getppid() == client:
        ready = poll.poll(1000)
        while judges and (ended := os.waitpid(-1, os.WNOHANG)[0]):
            judges.discard(ended)
        if not ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(connection, LONGEST, 1)
        if not message:
            return
        command, number, *more = json.loads(message)
        if command == "fork":
            with suppress(OSError):  # no process is left: whoever asked sees the connection close
                judges.add(_fork(socket.socket(fileno=descriptors[0]), number, config | {"jails": more[0]}))
        elif number in judges:  # it has not been waited for, so the number is still its own
            os.kill(number, signal.SIGKILL)


def _fork(connection: socket.socket, slot: int, config: dict[str, Any]) -> int:
    with connection:
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            gc.freeze()  # collecting the parent's sockets here would close descriptors that have been reused
            os.dup2(connection.fileno(), 3)
            os.closerange(4, 4096)
            judge.serve(socket.socket(fileno=3), slot, config)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)


def _end(judges: set[int]) -> None:
    """End the judges, by force after some seconds."""
    for pid in judges:
        os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + _END_S
    for pid in judges:
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            if time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)
        os.waitpid(pid, 0)
