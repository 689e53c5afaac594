"""The lock between processes."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_lib.locks import locked

HOLD = """
import sys, time
from pathlib import Path
from pipeline_lib.locks import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(100)
"""
ADD = """
import sys, time
from pathlib import Path
from pipeline_lib.locks import locked
counter = Path(sys.argv[2])
for _ in range(50):
    with locked(Path(sys.argv[1])):
        counter.write_text(str(int(counter.read_text()) + 1))
"""


def test_a_killed_holder_leaves_nothing_behind(tmp_path: Path) -> None:
    lock = tmp_path / "below" / "lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    holder.send_signal(signal.SIGKILL)
    with locked(lock):
        assert holder.wait() == -signal.SIGKILL


def test_one_at_a_time(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    command = [sys.executable, "-c", ADD, str(tmp_path / "lock"), str(counter)]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert counter.read_text() == "150"


def test_who_does_not_wait_is_refused(tmp_path: Path) -> None:
    with locked(tmp_path / "lock"), pytest.raises(BlockingIOError), locked(tmp_path / "lock", wait=False):
        pass
    with locked(tmp_path / "lock", wait=False):
        pass
