"""The sandbox on Ray, in an interpreter that has it: this one, or that of benchmarks/make_ray_environment.sh."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.needs import RAY_PYTHON, ROOT, needs


@pytest.mark.service
@needs("Ray")
def test_on_a_cluster_of_two_nodes(tmp_path: Path) -> None:
    command = [str(RAY_PYTHON), "-m", "tests.sandbox.ray_cluster"]
    found = os.environ | {"PYTHONPATH": str(ROOT)}  # Ray's processes on this machine also look where they were started
    done = subprocess.run(command, check=False, cwd=tmp_path, env=found, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
