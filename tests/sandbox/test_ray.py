"""The sandbox on Ray, in an interpreter that has it: this one, or that of benchmarks/make_ray_environment.sh."""

import subprocess

import pytest

from tests.needs import RAY_PYTHON, ROOT, needs


@pytest.mark.service
@needs("Ray")
def test_on_a_cluster_of_two_nodes() -> None:
    command = [str(RAY_PYTHON), "-m", "tests.sandbox.ray_cluster"]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
