"""What all tests share: the project's local state goes to a temporary folder, never to the real ``.symposium``.

The variables must stand before any test module imports Prefect or MLflow, which read them once.
"""

import atexit
import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import hypothesis
import pytest

# Whoever wants other examples than everybody has asks for them: --hypothesis-profile=default
hypothesis.settings.load_profile("ci")  # the same ones in every run, however long they take

_home = tempfile.mkdtemp(prefix="symposium-tests-")
os.environ["SYMPOSIUM_HOME"] = _home
for _name in ("PREFECT_API_URL", "PREFECT_HOME", "MLFLOW_TRACKING_URI"):
    os.environ.pop(_name, None)
# The tests start hundreds of processes: where it is set, each would compile all our modules anew, for seconds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False  # and pytest would prepare the assertions of all tests again in every run
atexit.register(shutil.rmtree, _home, ignore_errors=True)

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # Started in the background by a shell: our children would inherit deafness to Ctrl-C, which tests send.
    signal.signal(signal.SIGINT, signal.default_int_handler)

from pipeline_lib.locks import locked  # noqa: E402
from pipeline_lib.tracking.store import SQLITE, make_database  # noqa: E402
from tasks.identity.run import NOTE, TITLE  # noqa: E402
from tasks.services.preloaded import preloaded  # noqa: E402
from tasks.services.process_environment import prepare  # noqa: E402  (the variables come first)
from tasks.services.servers import prefect_server  # noqa: E402
from tests.crashes import (  # noqa: E402, F401  (hooks)
    leave_out_passed,
    pytest_configure,
    pytest_handlecrashitem,
    pytest_runtest_logreport,
)
from tests.flows.project import BEGAN_WITH  # noqa: E402
from tests.needs import pytest_runtest_setup, pytest_terminal_summary  # noqa: E402, F401  (hooks)
from tests.sampling import leave_out, slow_tests  # noqa: E402

prepare()


def pytest_xdist_auto_num_workers() -> int:
    """Return how many processes share the tests: one more than there are cores, for many tests wait for a long time."""
    return len(os.sched_getaffinity(0)) + 1


@pytest.hookimpl(tryfirst=True)  # before the marks select what runs
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Draw the samples; where several processes share the tests, put first the files that take longest."""
    leave_out(items)
    leave_out_passed(config, items)
    if hasattr(config, "workerinput"):  # this is one of pytest-xdist's processes, which take whole files, in this order
        known, seconds = slow_tests(), Counter[Path]()
        for item in items:
            if not item.get_closest_marker("exhaustive"):
                seconds[item.path] += known.get(item.nodeid, 0)
        items.sort(key=lambda item: -seconds[item.path])


@pytest.fixture(autouse=True)
def _a_run_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name and note that a test gives its run are not those of the next test's."""
    for variable in (TITLE, NOTE):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture(autouse=True)
def _time_without_limit() -> Iterator[None]:
    """A test that leaves a limit of CPU time behind would end this process, without a word, in one that takes long."""
    ask = resource.getrlimit  # a test may replace it, and that is undone after this
    limit = ask(resource.RLIMIT_CPU)
    yield
    assert ask(resource.RLIMIT_CPU) == limit, "this process is ended when it has used so much CPU time"


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of MLflow without runs, the same in all processes; making one takes seconds, copying it nothing."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    database = folder / "database" / "mlflow.db"
    with locked(folder / "database.lock"):
        if not database.exists():
            database.parent.mkdir()
            make_database(f"{SQLITE}{database}", database.parent)
    return database


@pytest.fixture(scope="session")
def empty_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of git and DVC in which nothing was committed; tests copy it."""
    folder = tmp_path_factory.mktemp("empty")
    for program in ("git", "dvc"):
        subprocess.run([program, "init", "-q"], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="session")
def server() -> Iterator[dict[str, str]]:
    """The variable of people who leave a Prefect server running; without one, each command starts one of its own."""
    with prefect_server() as url:
        yield {"PREFECT_API_URL": f"{url}/api"}


@pytest.fixture(scope="session")
def ready(server: dict[str, str]) -> Iterator[dict[str, str]]:
    """The variables by which ``python -m flows.<program>`` uses the server, and is a fork that need not load libraries.

    As `symposium run` offers them to its stages; a program is a process of its own all the same.
    """
    same = {name: os.environ[name] for name in ("PREFECT_HOME", "PREFECT_UI_URL") if name in os.environ}
    with contextlib.ExitStack() as held:
        with mock.patch.dict(os.environ, {**BEGAN_WITH, **server, **same}, clear=True):
            libraries = held.enter_context(preloaded(Path.cwd(), stages=2, jobs=1))
        yield {**server, **libraries(), **same}
