"""How a program ends: errors that explain themselves become a message, others keep their traceback; never status 0.

An error explains itself if the project raised it on purpose (its class is defined here) or if it comes from the file
system.  Everything else is a defect, and its traceback is what helps.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
import traceback
from typing import NoReturn

from pipeline_lib.settings import SettingsError

SETTINGS_STATUS, INTERRUPT_STATUS = 2, 128 + signal.SIGINT
REFUSED = "refused: "
"""How the message of a stage begins that did its work and found a refusal."""
_logged: list[BaseException] = []


def end(error: BaseException) -> NoReturn:
    """End the process because of an error, with its explanation, or its traceback if it has none."""
    if isinstance(error, SystemExit):
        sys.exit(error.code)
    if isinstance(error, BrokenPipeError):  # who reads has read enough, as `| head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    if was_interrupted(error):
        sys.stderr.write("interrupted; the same command continues where this one stopped\n")
        sys.exit(INTERRUPT_STATUS)
    if is_explained(error):
        sys.stderr.write(f"error: {explanation(error)}\n")
    elif error in _logged:
        sys.stderr.write(f"error: {type(error).__name__}: {error} (see above)\n")
    else:
        traceback.print_exception(error)
    sys.exit(SETTINGS_STATUS if isinstance(error, SettingsError) else 1)


def is_explained(error: BaseException) -> bool:
    """Return whether an error's text says all there is to say: our own errors, and those of the file system."""
    own = type(error).__module__.partition(".")[0] in {"pipeline_lib", "tasks", "flows", "symposium"}
    return own or isinstance(error, OSError)


def explanation(error: BaseException) -> str:
    """Return an error's text, with advice where the text alone is terse."""
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return f"{error}; the disk is full: free some space, then the same command continues (nothing is half-written)"
    return str(error) or type(error).__name__


def was_interrupted(error: BaseException) -> bool:
    """Return whether an error is somebody's wish to stop: Ctrl-C, SIGTERM, or a stop on request."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"KeyboardInterrupt", "TerminationSignal", "TrainingStopped"})


def explain_in_logs() -> None:
    """Keep tracebacks of explained errors out of Prefect's logs; unexplained ones stay."""
    for name in ("prefect.flow_runs", "prefect.task_runs"):
        logger = logging.getLogger(name)
        if _without_traceback not in logger.filters:
            logger.addFilter(_without_traceback)


def _without_traceback(record: logging.LogRecord) -> bool:
    if record.exc_info and record.exc_info[1] is not None:
        if is_explained(record.exc_info[1]):
            record.exc_info = record.exc_text = None
        else:
            _logged.append(record.exc_info[1])
    return True
