"""Run the tests in several processes; run a few failed tests once more, alone, and report both results.

The tests start servers, containers and jails and kill them, several at the same time.  A test that fails beside others
and passes alone shows that the machine was too busy, or that two tests disturb each other.  It does not fail the run,
but it is reported at the end as UNSTEADY and should be fixed.  A fault in the product fails both times.

If one of the processes dies, the others end, and what has not passed runs in new ones; that is UNSTEADY, too.

What the system lacks is not tested; it is named last, with the package that brings it.

Usage: ``python -m scripts.run_tests [arguments for pytest]``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

MOST_AGAIN = 3
"""More failures than this are no accident of a busy machine: nothing runs again, the run has failed."""

_PYTEST = (sys.executable, "-m", "pytest")
_BESIDE = ("-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder", "--max-worker-restart=0")
_CACHE = Path(".pytest_cache/v")
_LAST_FAILED = _CACHE / "cache/lastfailed"
_PASSED, _DIED = _CACHE / "symposium/passed", _CACHE / "symposium/died"  # tests/crashes.py writes them
_MOST_DEATHS = 3
_UNTESTED = _CACHE / "symposium/untested"  # tests/needs.py writes it: how many tests were skipped, by reason
_SOME_FAILED = 1  # pytest's exit status; the others are for interruptions, wrong usage and internal errors


def failed_tests(cache: Path = _LAST_FAILED) -> list[str]:
    """Return the ids of the tests (and of files that did not load) that pytest noted as failed in its last run."""
    return sorted(json.loads(cache.read_text())) if cache.exists() else []


def run(arguments: list[str]) -> int:
    """Run the tests that ``arguments`` of pytest select. Return the exit status: 0 if each passed, at last alone."""
    for noted in (_LAST_FAILED, _UNTESTED, _PASSED, _DIED):
        noted.unlink(missing_ok=True)
    status = subprocess.run([*_PYTEST, *_BESIDE, *arguments], check=False).returncode
    for deaths in range(1, _MOST_DEATHS + 1):
        if len(died := _DIED.read_text().splitlines() if _DIED.exists() else []) != deaths:
            break
        _say("UNSTEADY: a process died while it ran this test; what has not passed runs again:", died[-1:])
        left = {**os.environ, "SYMPOSIUM_TESTS_LEFT": "1"}
        status = subprocess.run([*_PYTEST, *_BESIDE, *arguments], check=False, env=left).returncode
    skipped = json.loads(_UNTESTED.read_text()) if _UNTESTED.exists() else {}
    failed = failed_tests()
    if status == _SOME_FAILED and 0 < len(failed) <= MOST_AGAIN:
        status = _run_again(failed)
    if skipped:
        _say("Not tested here:", [f"{count:4} {reason}" for reason, count in sorted(skipped.items())])
    return status


def _run_again(failed: list[str]) -> int:
    _say("These failed beside other tests and run once more, alone:", failed)
    # Whatever markers selected them, they run now.
    status = subprocess.run([*_PYTEST, "-n", "0", "-m", "", *failed], check=False).returncode
    if status == 0:
        _say("UNSTEADY: failed beside other tests, passed alone (what they printed stands above):", failed)
    return status


def _say(first: str, names: list[str]) -> None:
    print("\n" + "\n    ".join([first, *names]) + "\n", flush=True)  # noqa: T201  (a command's output)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
