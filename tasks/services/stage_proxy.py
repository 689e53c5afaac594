"""Run a stage in a fork of the preloaded process (`tasks.services.preloaded`); this process remains as its proxy.

The proxy forwards signals, ends with DVC, and exits with the status of the fork.
"""

import contextlib
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline_lib.locks import locked
from tasks.services.end_with_parent import LOOK_S, above_the_stage, end_with_dvc
from tasks.services.process_environment import places
from tasks.services.processes import ended, kernel_kills

ADDRESS = "SYMPOSIUM_PRELOADED"
"""Environment variable: path of the socket of the process that has the libraries in memory."""
RUN_OWNER, JOINED = "SYMPOSIUM_RUN_OWNER", "SYMPOSIUM_WITH_DVC"
ITSELF = "loads the libraries itself"
"""Part of the message of a stage that does not use the preloaded process."""

# What Python, the C library and the libraries read when they are loaded, and so would not read again in a fork.
_READ_AT_IMPORT = re.compile(
    "PYTHON|LD_|MALLOC_|GLIBC_|HOME$|TMP|TEMP|XDG_|TZ$|LANG|LC_"
    "|(OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|VECLIB|NUMEXPR|NPY|NUMPY|SCIPY)_"
    "|(TORCH|PYTORCH|AT|ATEN|C10|CUDA|CUBLAS|CUDNN|NVIDIA|NCCL|GLOO|HIP|HSA|ROCR|XLA|TRITON|DNNL|ONEDNN)_?"
    "|(HF|HUGGINGFACE|TRANSFORMERS|TOKENIZERS|SAFETENSORS|ACCELERATE|RAYON|USE)_"
    "|(PREFECT|MLFLOW|SQLALCHEMY|PYDANTIC|OTEL)_|MPLBACKEND|DO_NOT_TRACK"
)
# Our tracking sets these while a chain runs, and the process with the libraries always has the last one.
_NO_MATTER = (
    "MLFLOW_ENABLE_ASYNC_TRACE_LOGGING",
    "MLFLOW_HTTP_REQUEST_",
    "MLFLOW_SUPPRESS_",
    "MLFLOW_TRACKING_URI",
    "PYTHONUNBUFFERED",
)
_LENGTH = struct.Struct("!I")
_FORWARDED = (signal.SIGINT, signal.SIGTERM)


def dvc_file(dvc: int) -> Path:
    """Return the file by which stages of a DVC process find what `tasks.services.with_dvc` offers them."""
    return places().home / f"with-dvc-{dvc}.json"


def join_dvc() -> None:
    """Let this stage of a DVC command share a server and the libraries with the others; the first one starts them.

    Does nothing outside DVC, below a process that offers both itself, in children of a stage, and for the stage
    `identity`, which needs neither.
    """
    if "DVC_STAGE" not in os.environ or os.environ.keys() & {ADDRESS, RUN_OWNER, JOINED} or sys.argv[0] != "-m":
        return
    if sys.orig_argv[sys.orig_argv.index("-m") + 1] == "flows.identity":
        return
    dvc = above_the_stage()
    os.environ[JOINED] = str(dvc)
    file, log = dvc_file(dvc), places().home / "logs" / "with-dvc.log"
    with locked(places().home / "with-dvc.lock"):
        if not file.exists():
            log.parent.mkdir(exist_ok=True)
            process = subprocess.Popen(
                [sys.executable, "-m", "tasks.services.with_dvc", str(dvc)],
                env={name: value for name, value in os.environ.items() if not name.startswith("DVC_")},
                stdin=subprocess.DEVNULL,
                stdout=log.open("wb"),
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            while not file.exists() and process.poll() is None:
                time.sleep(LOOK_S / 10)
    with contextlib.suppress(OSError, ValueError):  # it could not start: the stage does without, and says what is wrong
        os.environ.update(json.loads(file.read_text(encoding="utf-8")))


def run_in_preloaded() -> None:
    """Run this program, ``python -m flows.<stage>``, in a fork of the preloaded process, and exit with its status.

    Returns if there is no such process, or if its environment variables differ so that it may have imported other
    libraries; then this process does the work itself.  To be called before the libraries are imported.
    """
    address = os.environ.pop(ADDRESS, "")
    if not address or sys.argv[0] != "-m":  # "-m": Python has not yet found the module to run
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
    """Forward signals until the fork has ended; return its status."""

    def forward(number: int, _frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    for number in _FORWARDED:
        signal.signal(number, forward)
    end_with_dvc()
    kills = kernel_kills()
    try:
        end = receive(server)[0]
        status = int(end["status"])
    except (OSError, ValueError):
        sys.stderr.write("error: the process of this stage is gone; run the same command again to continue\n")
        return 1
    if status < 0 and -status not in _FORWARDED:
        sys.stderr.write(f"error: {ended(status, end['held'], kernel_kills() > kills)}\n")
    return status if status >= 0 else 128 - status


def differing(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Return the variables by which two environments differ and that may change how libraries are imported."""
    return sorted(
        name
        for name in ours.keys() | theirs.keys()
        if ours.get(name) != theirs.get(name) and _READ_AT_IMPORT.match(name) and not name.startswith(_NO_MATTER)
    )


def address_in(path: Path) -> str:
    """Return a short address of a socket with any path (the kernel accepts 107 bytes).

    The folder stays open until the process ends.
    """
    folder = os.open(path.parent, os.O_DIRECTORY | os.O_CLOEXEC)
    return f"/proc/self/fd/{folder}/{path.name}"


def send(to: socket.socket, message: Mapping[str, Any], descriptors: tuple[int, ...] = ()) -> None:
    """Send a message as JSON, with open files."""
    content = json.dumps(message).encode()
    socket.send_fds(to, [_LENGTH.pack(len(content))], descriptors)
    to.sendall(content)


def receive(sender: socket.socket, descriptors: int = 0) -> tuple[dict[str, Any], list[int]]:
    """Return a message and the open files that were sent with it.

    Raises:
        ValueError: the sender has ended, or has sent something else.
    """
    head, files, _, _ = socket.recv_fds(sender, _LENGTH.size, descriptors)
    if len(head) < _LENGTH.size or len(files) != descriptors:
        raise ValueError("no message")
    (left,) = _LENGTH.unpack(head)
    content = b""
    while len(content) < left:
        part = sender.recv(left - len(content))
        if not part:
            raise ValueError("incomplete message")
        content += part
    return json.loads(content), list(files)
