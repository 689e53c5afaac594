"""Child processes never stay behind: not when stopped, not when their parent is killed, not in other groups."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tasks.services.processes import start, stop
from tests.tasks.waiting import gone, wait

FAMILY = """
import subprocess, sys, time
from pathlib import Path
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
Path(sys.argv[1]).touch()
time.sleep(300)
"""
STUBBORN = """
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGTERM, signal.SIG_IGN)
Path(sys.argv[1]).touch()
time.sleep(300)
"""
PARENT = """
import os, subprocess, sys, time
from pathlib import Path
from tasks.services.processes import start
command = [sys.executable, "-c", sys.argv[2], sys.argv[1]]
child = start(command, os.environ, Path.cwd(), subprocess.DEVNULL, *map(int, sys.argv[3:]))
print(child.pid, flush=True)
time.sleep(300)
"""


def begun(tmp_path: Path, code: str) -> tuple[subprocess.Popen[bytes], list[psutil.Process]]:
    marker = tmp_path / "begun"
    process = start([sys.executable, "-c", code, str(marker)], os.environ, tmp_path, subprocess.DEVNULL)
    wait(marker.exists)
    return process, psutil.Process(process.pid).children(recursive=True)


def test_a_child_is_the_command_itself_at_the_head_of_its_own_group(tmp_path: Path) -> None:
    process, _ = begun(tmp_path, STUBBORN)
    assert psutil.Process(process.pid).cmdline()[1] == "-c"
    assert os.getpgid(process.pid) == process.pid
    stop(process, 0.1)


def test_grandchildren_in_other_groups_are_ended_too(tmp_path: Path) -> None:
    process, family = begun(tmp_path, FAMILY)
    assert len(family) == 1
    assert os.getpgid(family[0].pid) != process.pid
    stop(process, 5)
    assert process.returncode == -signal.SIGTERM
    assert gone(family[0])


def test_one_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    process, _ = begun(tmp_path, STUBBORN)
    stop(process, 0.2)
    assert process.returncode == -signal.SIGKILL


def test_stopping_what_has_ended_is_no_error(tmp_path: Path) -> None:
    process = start([sys.executable, "-c", ""], os.environ, tmp_path, subprocess.DEVNULL)
    process.wait()
    stop(process)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("code", "by"),
    [("import sys, time; open(sys.argv[1], 'w'); time.sleep(300)", signal.SIGTERM), (STUBBORN, signal.SIGKILL)],
    ids=["politely", "by force"],
)
def test_children_end_with_a_parent_that_is_killed(tmp_path: Path, code: str, by: int) -> None:
    marker = tmp_path / "begun"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(marker), code, str(int(by))], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    wait(marker.exists)
    parent.kill()
    parent.wait()
    wait(lambda: gone(child))
