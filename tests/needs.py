"""What tests need of the system, and what brings it: the one place that knows.

A test, or a parameter of one, is marked ``@needs("bubblewrap")``; a fixture or a helper calls ``require("browser")``.
If it is missing, the test is skipped, and the end of ``make test`` says so (`scripts.run_tests`). With
``SYMPOSIUM_REQUIRE_SERVICES=1`` the test fails instead, unless no package can bring it, as with a GPU.
"""

import ctypes
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

ROOT = Path(__file__).resolve().parent.parent
VLLM_PYTHON = ROOT / ".venv-vllm/bin/python"
RAY_PYTHON = Path(sys.executable) if importlib.util.find_spec("ray") else ROOT / ".venv-ray/bin/python"
CLASS_EVAL = ROOT / "../shared/data/ClassEval-first66.json.gz"

UNTESTED = "symposium/untested"
"""Under this name pytest's cache keeps the number of skipped tests by reason."""


class Need(NamedTuple):
    """Something that a test needs."""

    here: Callable[[], bool]
    bring: str
    """What brings it, as the end of a sentence."""
    installable: bool = True


def _programs(*names: str) -> bool:
    return all(shutil.which(name) for name in names)


def _runs(*command: str) -> bool:
    return _programs(command[0]) and subprocess.run(command, check=False, capture_output=True).returncode == 0


def _libseccomp() -> bool:
    try:
        ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return False
    return True


def _gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _postgres() -> bool:
    return _programs("postgres") or any(Path("/usr/lib/postgresql").glob("*/bin/postgres"))


def memory_groups() -> Path:
    """Return the folder in which control groups with a limit of memory can be made (version 1 or 2 of them)."""
    root = Path("/sys/fs/cgroup")
    return root / "memory" if (root / "memory").is_dir() else root


def _limits_memory() -> bool:
    groups = memory_groups()
    try:
        if groups.name != "memory" and "memory" not in (groups / "cgroup.subtree_control").read_text().split():
            return False
        (made := groups / f"symposium-{os.getpid()}").mkdir()
    except OSError:
        return False
    made.rmdir()
    return True


_ROOT_USER = os.geteuid() == 0
_NAMESPACES = ["--ipc", "--pid", "--net", "--uts", "--fork", *([] if _ROOT_USER else ["--user"])]

NEEDS = {
    "bubblewrap": Need(
        lambda: _runs("bwrap", "--ro-bind", "/", "/", "--unshare-pid", "--unshare-net", "true"),
        "apt-get install bubblewrap, and a kernel that lets this user create namespaces",
    ),
    "namespaces": Need(lambda: _runs("unshare", *_NAMESPACES, "true"), "a kernel that lets this user create them"),
    "libseccomp": Need(_libseccomp, "apt-get install libseccomp2"),
    "dockerd": Need(lambda: _ROOT_USER and _programs("dockerd"), "apt-get install docker.io, and to be root"),
    "networks": Need(
        lambda: _ROOT_USER and _programs("ip") and _runs("unshare", "--net", "true"),
        "apt-get install iproute2, and to be root",
    ),
    "gVisor": Need(lambda: _programs("runsc"), "apt-get install runsc"),
    "browser": Need(lambda: _programs("chromium", "chromedriver"), "apt-get install chromium chromium-driver"),
    "Inspect": Need(
        lambda: importlib.util.find_spec("inspect_ai") is not None, "pip install inspect-ai", installable=False
    ),
    "vLLM": Need(VLLM_PYTHON.exists, "benchmarks/make_vllm_environment.sh"),
    "Ray": Need(RAY_PYTHON.exists, "benchmarks/make_ray_environment.sh"),
    "reasoning-gym": Need(
        lambda: importlib.util.find_spec("reasoning_gym") is not None, "pip install reasoning-gym==0.1.25, and gcc"
    ),
    "prefect-docker": Need(
        lambda: importlib.util.find_spec("prefect_docker") is not None, "pip install prefect-docker==0.7.4"
    ),
    "team servers": Need(
        lambda: all(importlib.util.find_spec(name) for name in ("psycopg", "boto3", "dvc_s3")) and _postgres(),
        "pip install '.[team]' and apt-get install postgresql",
    ),
    "faketime": Need(lambda: _programs("faketime"), "apt-get install faketime"),
    "GPU": Need(_gpu, "a machine with CUDA", installable=False),
    "ClassEval": Need(CLASS_EVAL.exists, f"the file {CLASS_EVAL.name} in shared/data", installable=False),
    "memory groups": Need(_limits_memory, "to be root where control groups of memory can be made", installable=False),
    "root": Need(lambda: _ROOT_USER, "to run the tests as root", installable=False),
    "python of the system": Need(
        lambda: _runs("/usr/bin/python3", "-c", "import sys; sys.exit(sys.version_info < (3, 11))"),
        "apt-get install python3, 3.11 or newer",
    ),
}


@functools.cache
def here(name: str) -> bool:
    """Return whether the system has it."""
    return NEEDS[name].here()


def missing(name: str, why: str = "") -> NoReturn:
    """Skip the test that asks, or fail it if services are required."""
    need = NEEDS[name]
    reason = f"needs {name}: {need.bring}" + (f" ({why})" if why else "")
    if need.installable and os.environ.get("SYMPOSIUM_REQUIRE_SERVICES"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def require(name: str) -> None:
    """Skip or fail the test that asks if the system does not have it."""
    if not here(name):
        missing(name)


needs = pytest.mark.needs

JAILS = (pytest.param("bwrap", marks=needs("bubblewrap")), pytest.param("unshare", marks=needs("namespaces")), "bare")
"""The kinds of jail for processes, as parameters of a test."""


# The hooks are pytest's; tests/conftest.py imports them.


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs something that is missing, before any fixture starts."""
    for marker in item.iter_markers("needs"):
        for name in marker.args:
            require(name)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Keep what was skipped for `scripts.run_tests`."""
    reasons = (report.longrepr[2] for report in terminalreporter.stats.get("skipped", ()))
    counts = Counter(reason.removeprefix("Skipped: ") for reason in reasons)
    if cache := getattr(config, "cache", None):
        cache.set(UNTESTED, counts)
