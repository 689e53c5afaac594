"""The sandbox on Ray, in an interpreter that has it: this one, or that of benchmarks/make_ray_environment.sh."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OWN = ROOT / ".venv-ray/bin/python"
PYTHON = sys.executable if importlib.util.find_spec("ray") else str(OWN)


@pytest.mark.service
@pytest.mark.slow
@pytest.mark.skipif(
    not Path(PYTHON).exists() and not os.environ.get("SYMPOSIUM_REQUIRE_SERVICES"),
    reason="Ray is not installed: benchmarks/make_ray_environment.sh",
)
def test_on_a_cluster_of_two_nodes() -> None:
    done = subprocess.run(
        [PYTHON, "-m", "tests.sandbox.ray_cluster"], check=False, cwd=ROOT, capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stdout + done.stderr
