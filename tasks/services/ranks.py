"""Several processes train one team: the first one starts the others, and all end together.

They find each other by the variables that ``torchrun`` and ``accelerate launch`` set.  So a training run that was
started by one of these (on several machines, for example) starts no processes here and joins the others in the same
way.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from tasks.services.process_environment import child_environment
from tasks.services.processes import start, stop

STDOUT = 1
PATIENCE_S = 15.0
_FAILED = "one of the training processes failed; the others are stopped\n"
_NOTICED_S = 1.0  # so much later than its connections' end, a process has ended


def is_first_rank() -> bool:
    """Return whether this process is rank 0 of its training run, which reports and writes."""
    return int(os.environ.get("RANK", "0")) == 0


@contextlib.contextmanager
def other_ranks(processes: int, *command: str) -> Iterator[None]:
    """Have ``processes - 1`` further processes run ``python <command>`` for as long as the block lasts.

    When one of them fails this process is ended: it would wait for the other's part for ever.  Nothing is started when
    a launcher has done so already.
    """
    if processes == 1 or int(os.environ.get("WORLD_SIZE", "1")) > 1:
        yield
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ.update(common, RANK="0", LOCAL_RANK="0")
    started = []
    for rank in range(1, processes):
        variables = child_environment(RANK=str(rank), LOCAL_RANK=str(rank))
        started.append(start([sys.executable, *command], variables, Path.cwd(), STDOUT))
    done = threading.Event()
    for process in started:
        threading.Thread(target=_end_with, args=(process, done), daemon=True).start()
    try:
        yield
        for process in started:
            process.wait()
    except Exception:  # a broken connection, perhaps, which is noticed here before the end of the other is
        done.set()
        if any(_failed(process) for process in started):
            sys.stderr.write(_FAILED)
        raise
    finally:
        done.set()
        for process in started:
            stop(process)
        for name in (*common, "RANK", "LOCAL_RANK"):
            os.environ.pop(name, None)


def _failed(process: subprocess.Popen[bytes]) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(timeout=_NOTICED_S) != 0
    return False


def _end_with(process: subprocess.Popen[bytes], done: threading.Event) -> None:
    if process.wait() == 0 or done.is_set():
        return
    sys.stderr.write(_FAILED)
    os.kill(os.getpid(), signal.SIGTERM)
    if not done.wait(PATIENCE_S):  # it waits for the other inside a library, where no signal reaches it
        os.kill(os.getpid(), signal.SIGKILL)
