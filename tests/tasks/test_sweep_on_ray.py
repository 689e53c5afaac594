"""The sweep on Ray, with the libraries of this interpreter and the Ray that the tests have, perhaps of another one."""

import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.needs import RAY_PYTHON, ROOT, needs


@pytest.mark.service
@needs("Ray")
def test_the_nodes_of_a_cluster_play_what_this_machine_plays(tmp_path: Path) -> None:
    command = [str(RAY_PYTHON), "-m", "tests.tasks.sweep_on_ray", str(tmp_path)]
    found = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), sysconfig.get_path("purelib")))}
    done = subprocess.run(command, check=False, cwd=ROOT, env=found, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
