"""What a process inherits from the one that starts it, and no verdict may depend on."""

from __future__ import annotations

import os
import resource
import signal

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
