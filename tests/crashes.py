"""What is needed to go on when one of pytest-xdist's processes dies: which tests have passed, and that one has died.

pytest-xdist 3.8 replaces a process that dies, but may then wait for ever for the tests that it had (``loadfile``).  So
the run ends at once (``--max-worker-restart=0``), and `scripts.run_tests` starts another one for what is left.
"""

import os
from pathlib import Path

import pytest

PASSED, DIED = Path(".pytest_cache/v/symposium/passed"), Path(".pytest_cache/v/symposium/died")
LEFT = "SYMPOSIUM_TESTS_LEFT"
"""Environment variable: only tests that are not in the file `PASSED` run."""

_first = False  # this process is not one of pytest-xdist's


def pytest_configure(config: pytest.Config) -> None:
    """Find out whether this process gets the reports of all."""
    global _first
    _first = not hasattr(config, "workerinput")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a test that passed or was skipped."""
    if _first and (report.skipped or (report.when == "call" and report.passed)):
        PASSED.parent.mkdir(parents=True, exist_ok=True)
        with PASSED.open("a") as file:
            file.write(report.nodeid + "\n")


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str) -> None:
    """Note that a process died."""
    DIED.parent.mkdir(parents=True, exist_ok=True)
    with DIED.open("a") as file:
        file.write(crashitem + "\n")


def leave_out_passed(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what has passed before a process died."""
    if os.environ.get(LEFT) and PASSED.exists():
        passed = set(PASSED.read_text().splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
        items[:] = [item for item in items if item.nodeid not in passed]
