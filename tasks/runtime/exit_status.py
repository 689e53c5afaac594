"""Exit status and output of a program that fails: a message for explained errors, a traceback for all others.

An error is explained if its class is defined in this project, or if it comes from the file system.  Every other error
is a defect, and its traceback helps to find it.  The status is never 0.
"""

import contextlib
import errno
import logging
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from typing import NoReturn

from pipeline_lib.settings import SettingsError
from tasks.runtime.arguments import ArgumentError, fit_terminal
from tasks.services.causes import causes

SETTINGS_STATUS, INTERRUPT_STATUS, TERMINATED_STATUS = 2, 128 + signal.SIGINT, 128 + signal.SIGTERM
ERROR = "error: "
"""First word of the message of a process that failed for an explained reason; nothing follows the message."""
SEE_ABOVE = " (see above)"
"""Last words of the message of a process that has already shown the traceback."""
REFUSED = "refused: "
"""First word of the message of a stage that succeeded with the result to refuse."""
INTERRUPTED = "interrupted; run the same command again to continue"
_ADVICE = "the disk is full: free some space and run the same command again (no file is half-written)"
_GONE = (
    "the Prefect server of this run does not answer any more, as after a kill; run the same command again to continue"
)
_FAULT_OF_SERVER = 500
_AWAY = "the Prefect server does not answer; the work goes on, and its pages will lack some of what happens meanwhile"
_logged: list[BaseException] = []
_logged_once: set[str] = set()


class Terminated(KeyboardInterrupt):
    """SIGTERM asked this process to end."""


@contextlib.contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Raise `Terminated` at SIGTERM in a ``with`` block, so that everything is closed as at Ctrl-C.

    Prefect's flows end themselves first, and then call this handler.
    """

    def end(*_: object) -> NoReturn:
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """End the process for any error in a ``with`` block, with its explanation, or its traceback if it has none."""
    try:
        yield
        sys.stdout.flush()  # a reader that has gone is noticed here; at Python's own end it would be a message
    except BaseException as error:
        _end(error)


def _end(error: BaseException) -> NoReturn:
    if isinstance(error, SystemExit):
        sys.exit(error.code)
    is_gone, error = server_is_gone(error), _behind(error)
    if isinstance(error, BrokenPipeError):  # the reader has closed the pipe, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    if was_interrupted(error):
        sys.stderr.write(f"{INTERRUPTED}\n")
        _leave(TERMINATED_STATUS if _names(error) & {"Terminated", "TerminationSignal"} else INTERRUPT_STATUS, is_gone)
    if is_explained(error):
        sys.stderr.write(f"{fit_terminal(f'{ERROR}{explanation(error)}')}\n")
    elif is_gone:
        sys.stderr.write(f"{fit_terminal(f'{ERROR}{_GONE}')}\n")
    elif error in _logged:
        sys.stderr.write(f"error: {type(error).__name__}: {error}{SEE_ABOVE}\n")
    else:
        traceback.print_exception(error)
    _leave(SETTINGS_STATUS if isinstance(error, (SettingsError, ArgumentError)) else 1, is_gone)


def _leave(status: int, is_gone: bool) -> NoReturn:
    """End this process; at Python's own end Prefect would wait for a server that is gone, for minutes."""
    if is_gone:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)
    sys.exit(status)


def _behind(error: BaseException) -> BaseException:
    """Return the interrupt or the explained error that Prefect could not record; else the error itself.

    Its server may be gone, or the disk full.
    """
    if server_is_gone(error) and (interrupt := next(filter(was_interrupted, causes(error)), None)):
        return interrupt
    cause: BaseException | None = error
    while cause is not None and type(cause).__module__.startswith(("prefect.", "httpx")):
        cause = cause.__cause__ or cause.__context__
    return cause if cause is not None and is_explained(cause) else error


def server_is_gone(error: BaseException) -> bool:
    """Return whether an error says that Prefect's server, or its database, does not answer, and nothing else."""
    kinds: set[str] = set()
    for found in causes(error):
        if was_interrupted(found) and found is not error:
            break  # what was wrong before it
        ours = type(found).__module__.partition(".")[0] in {"prefect", "httpx", "httpcore", "anyio"}
        # The last one is Prefect's, a RuntimeError.
        if not (ours or isinstance(found, OSError) or str(found).startswith("Failed to reach API at")):
            return False
        kinds |= {kind.__name__ for kind in type(found).__mro__ if kind.__module__ == "httpx"}
        if getattr(getattr(found, "response", None), "status_code", 0) >= _FAULT_OF_SERVER:
            return True
    return "TransportError" in kinds


def is_explained(error: BaseException) -> bool:
    """Return whether an error needs no traceback: errors of this project and of the file system."""
    ours = type(error).__module__.partition(".")[0] in {"pipeline_lib", "tasks", "flows", "symposium"}
    return ours or isinstance(error, OSError) or _disk_is_full(error) or _memory_is_full(error)


def explanation(error: BaseException) -> str:
    """Return an error's text, with advice if the disk or the memory is full."""
    if _disk_is_full(error) and _ADVICE not in str(error):  # the error of a stage already has it
        return f"{error}; {_ADVICE}"
    if _memory_is_full(error):
        return (
            f"there was not enough memory ({' '.join(str(error).split())[:200] or type(error).__name__}); a limit of "
            "address space (ulimit -v) has to be greater than what `symposium plan --memory` shows, for it counts what "
            "is only reserved, too"
        )
    return str(error) or type(error).__name__


def _memory_is_full(error: BaseException) -> bool:
    """Return whether an allocation in main memory failed, which torch reports by words."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error) and "allocate" in str(error)
    )


def _disk_is_full(error: BaseException) -> bool:
    """Return whether an error says so, also one of SQLite or safetensors, which have only words for it."""
    if isinstance(error, OSError):
        return error.errno in {errno.ENOSPC, errno.EDQUOT}
    return any(words in str(error) for words in ("No space left on device", "database or disk is full"))


def was_interrupted(error: BaseException) -> bool:
    """Return whether an error is a request to stop: Ctrl-C, SIGTERM, or `TrainingStopped`."""
    return bool(_names(error) & {"KeyboardInterrupt", "TerminationSignal", "TrainingStopped"})


def _names(error: BaseException) -> set[str]:
    """Return the names of an error's class and those above it; libraries that have some load for seconds."""
    return {kind.__name__ for kind in type(error).__mro__}


def explain_in_logs() -> None:
    """Keep tracebacks of explained errors out of Prefect's logs, and interruptions, which the program explains.

    What the server of Prefect does not store, as on a full disk, is not reported line by line either, and that it is
    away is said once.
    """
    logging.raiseExceptions = False
    for wanted, names in (
        (_unexplained, ("prefect.flow_runs", "prefect.task_runs")),
        (_not_of_events, ("prefect.events.clients", "prefect._internal.concurrency")),
    ):
        for name in names:
            if wanted not in (logger := logging.getLogger(name)).filters:
                logger.addFilter(wanted)


def _unexplained(record: logging.LogRecord) -> bool:
    if record.getMessage().startswith("Crash detected!"):
        return False
    if record.exc_info and record.exc_info[1] is not None:
        if is_explained(record.exc_info[1]):
            record.exc_info = record.exc_text = None
        else:
            _logged.append(record.exc_info[1])
    return True


def _not_of_events(record: logging.LogRecord) -> bool:
    """Leave out what Prefect says, several times a minute, of events that a server that is away does not get."""
    text = record.getMessage()
    if text.startswith("Unable to connect to") and _AWAY not in _logged_once:
        _logged_once.add(_AWAY)
        record.msg, record.args = _AWAY, ()
        return True
    return not text.startswith(("Unable to connect to", "Service 'EventsWorker' failed "))
