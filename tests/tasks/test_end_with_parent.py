"""A stage ends with the DVC that started it, through whatever shell, and never without one."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.tasks.waiting import gone, wait

STAGE = """
import sys, time
from pathlib import Path
from tasks.services.end_with_parent import end_with_dvc
time.sleep(float(sys.argv[2]))
end_with_dvc()
Path(sys.argv[1]).write_text("tied")
time.sleep(300)
"""
DVC = """
import os, subprocess, sys, time
child = subprocess.Popen(sys.argv[1:], env={**os.environ, "DVC_STAGE": "train"})
print(child.pid, flush=True)
time.sleep(300)
"""
SHELLS = {
    "no shell": [],
    "a shell that becomes the command": ["/bin/sh", "-c", 'exec "$0" "$@"'],
    "a shell that waits for it": ["/bin/sh", "-c", '"$0" "$@"; true'],
    "two shells": ["/bin/sh", "-c", '/bin/sh -c \'"$0" "$@"; true\' "$0" "$@"; true'],
}


def family_of_a_killed_dvc(
    shell: list[str], marker: Path, late_s: float, tied: bool, stage: str = STAGE
) -> list[psutil.Process]:
    """Start a stage as DVC does, kill what stands for DVC, and return the processes that it has left."""
    command = [*shell, sys.executable, "-c", stage, str(marker), str(late_s)]
    dvc = subprocess.Popen([sys.executable, "-c", DVC, *command], stdout=subprocess.PIPE, start_new_session=True)
    assert dvc.stdout is not None
    first = psutil.Process(int(dvc.stdout.readline()))
    members = 1 + sum(word.count("; true") for word in shell)  # each shell that waits is a process of its own
    wait(marker.exists if tied else lambda: len(psutil.Process(dvc.pid).children(recursive=True)) == members)
    left = [first, *first.children(recursive=True)]
    dvc.kill()
    dvc.wait()
    return left


@pytest.mark.parametrize("shell", SHELLS.values(), ids=SHELLS)
def test_a_stage_ends_when_its_dvc_is_killed(tmp_path: Path, shell: list[str]) -> None:
    left = family_of_a_killed_dvc(shell, tmp_path / "tied", late_s=0, tied=True)
    wait(lambda: all(map(gone, left)))


@pytest.mark.parametrize("shell", SHELLS.values(), ids=SHELLS)
def test_it_ends_at_once_if_dvc_was_killed_before_it_looked(tmp_path: Path, shell: list[str]) -> None:
    left = family_of_a_killed_dvc(shell, tmp_path / "tied", late_s=1.5, tied=False)
    wait(lambda: all(map(gone, left)))


def test_a_stage_that_does_not_want_to_end_is_killed(tmp_path: Path) -> None:
    stubborn = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN){STAGE}"
    left = family_of_a_killed_dvc([], tmp_path / "tied", late_s=0, tied=True, stage=stubborn)
    wait(lambda: all(map(gone, left)))


def test_a_program_without_dvc_is_left_alone(tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "DVC_STAGE"}
    alone = subprocess.Popen([sys.executable, "-c", STAGE, str(tmp_path / "tied"), "0"], env=environment)
    wait((tmp_path / "tied").exists)
    time.sleep(1.2)  # more than two looks
    assert alone.poll() is None
    alone.kill()
    alone.wait()
