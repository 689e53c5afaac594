"""Shared by the tests of the Python interface."""

import sys
from pathlib import Path

# A user's environment is a module of its own; of one in this package, all tests would belong to each identity.
sys.path.insert(0, str(Path(__file__).parent / "own"))
