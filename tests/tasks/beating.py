"""A training process in the tests of the heartbeat: ``<work> <seconds of each kind>``; then it meets the others."""

import datetime
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable

import torch

from pipeline_lib.training import parallel
from tasks.runtime.exit_status import explained
from tasks.services import heartbeat


def python(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))


def torch_alone(seconds: float) -> None:
    """One call of torch after the other, each of which takes long."""
    end = time.monotonic() + seconds
    square = torch.rand(1500, 1500)
    while time.monotonic() < end:
        square @ square @ square @ square


def program(seconds: float) -> None:
    subprocess.run([sys.executable, "-c", f"import time; time.sleep({seconds})"], check=True)


def hashing(seconds: float) -> None:
    """Read something large."""
    end, content = time.monotonic() + seconds, bytes(1 << 28)
    while time.monotonic() < end:
        hashlib.sha256(content).digest()


WORK: dict[str, tuple[Callable[[float], None], ...]] = {
    "sleep": (time.sleep,),
    "everything": (python, torch_alone, program, hashing),
}

if __name__ == "__main__":
    heartbeat.BEAT_S = 0.1
    parallel.CONNECT = datetime.timedelta(seconds=5)
    with explained():
        with heartbeat.together() as processes:
            processes.gather(None)
            print(f"{os.getpid()} has begun", flush=True)
            if processes.rank == 1:
                for work in WORK[sys.argv[1]]:
                    work(float(sys.argv[2]))
            processes.gather(None)
            print("together", flush=True)
        time.sleep(processes.rank * heartbeat.BEAT_S * heartbeat.MISSED * 2)
    print("ended", flush=True)
