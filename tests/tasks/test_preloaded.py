"""A stage is done by a fork of a process that has the libraries in memory, and nobody can tell but by the clock."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipeline_lib.storage import process_label
from tasks.services.process_environment import HOME
from tasks.services.stage_proxy import ADDRESS, differing
from tests.needs import needs
from tests.tasks.waiting import gone, wait

ROOT = Path(__file__).parents[2]
# What `python -m flows.<stage>` does, with another module.
CLIENT = f"""
import sys
sys.path.append({str(ROOT)!r})
from tasks.services.process_environment import prepare
sys.argv = ["-m", *sys.argv[1:]]
sys.orig_argv = [sys.executable, "-m", "tests.tasks.forked", *sys.argv[1:]]
prepare()
from tasks.services.stage_proxy import run_in_preloaded
run_in_preloaded()
sys.exit("went on itself")
"""


@dataclass(frozen=True)
class Preloaded:
    process: psutil.Process
    socket: Path
    environment: dict[str, str]

    def ask(self, *arguments: str, folder: Path = ROOT, **changes: str) -> subprocess.Popen[str]:
        environment = {**self.environment, ADDRESS: str(self.socket), **changes}
        return subprocess.Popen(
            [sys.executable, "-c", CLIENT, *arguments],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def start_in(home: Path) -> Preloaded:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"} | {HOME: str(home)}
    socket = home / f"preloaded-{process_label()}.sock"
    command = [sys.executable, "-m", "tasks.services.preloaded", str(socket)]
    process = subprocess.Popen(command, cwd=ROOT, env=environment | {"PYTHONUNBUFFERED": "1"})  # as `preloaded` does
    wait(lambda: socket.exists() or process.poll() is not None)
    assert process.poll() is None
    return Preloaded(psutil.Process(process.pid), socket, environment)


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Preloaded]:
    home = tmp_path_factory.mktemp("a" * 120)  # a path too long for the address of a socket
    here, dead = process_label().partition("-")[0], 2**22 + 1  # beyond the greatest process number
    for name in (f"preloaded-{here}-{dead}.sock", f"preloaded-{here}-{dead}.new", f"preloaded-1{here}-{dead}.sock"):
        (home / name).touch()
    found = start_in(home)
    left = {found.socket.name, f"preloaded-1{here}-{dead}.sock"}
    assert {file.name for file in home.glob("preloaded-*")} == left, "what is of another container stays"
    yield found
    found.process.terminate()
    assert found.process.wait(10) == 0


def what_it_was(marker: Path) -> dict[str, Any]:
    wait(marker.exists)
    return dict(json.loads(marker.read_text()))


def test_a_fork_is_what_the_process_would_have_been(preloaded: Preloaded, tmp_path: Path) -> None:
    asked = preloaded.ask(str(tmp_path / "marker"), "7", SYMPOSIUM_RUN="some-run")
    output, errors = asked.communicate(timeout=60)
    assert (asked.returncode, output, errors) == (7, "said on its output\n", "")
    was = what_it_was(tmp_path / "marker")
    assert was["parents"][1] == preloaded.process.pid  # between them is the process that waits for its end
    assert was["libraries"] == ["torch", "prefect", "mlflow", "transformers"]
    assert was["arguments"] == [str(tmp_path / "marker"), "7"]
    assert (was["folder"], was["run"]) == (str(ROOT), "some-run")


def test_code_of_the_project_is_not_older_than_the_fork(preloaded: Preloaded, tmp_path: Path) -> None:
    preloaded.ask(str(tmp_path / "marker"), "0").communicate(timeout=60)
    assert what_it_was(tmp_path / "marker")["ours"] == []


def test_a_fork_works_in_the_folder_of_the_program_that_asked_and_with_its_code(
    preloaded: Preloaded, tmp_path: Path
) -> None:
    own = tmp_path / "tests/tasks/forked.py"
    own.parent.mkdir(parents=True)
    for package in (own.parent, own.parent.parent):
        (package / "__init__.py").touch()
    own.write_text("import os; print(os.getcwd(), __file__)")
    asked = preloaded.ask(folder=tmp_path)
    assert asked.communicate(timeout=60)[0].split() == [str(tmp_path), str(own)]


@needs("GPU")
def test_forks_use_the_gpu(preloaded: Preloaded, tmp_path: Path) -> None:
    own = tmp_path / "tests/tasks/forked.py"
    own.parent.mkdir(parents=True)
    for package in (own.parent, own.parent.parent):
        (package / "__init__.py").touch()
    own.write_text("import torch; print((torch.ones(3, device='cuda') * 2).sum().item())")
    for _ in range(2):
        assert preloaded.ask(folder=tmp_path).communicate(timeout=60)[0] == "6.0\n"


def test_a_program_of_the_project_never_loads_the_libraries_itself(preloaded: Preloaded) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "flows.train", "--seed"]
    environment = {**preloaded.environment, ADDRESS: str(preloaded.socket)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "train.py: error: argument --seed: expected one argument" in done.stderr
    assert "tasks.services.stage_proxy" in done.stderr
    assert "| torch" not in done.stderr and "prefect" not in done.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, 1)])
def test_signals_are_passed_on(preloaded: Preloaded, tmp_path: Path, number: signal.Signals, status: int) -> None:
    asked = preloaded.ask(str(tmp_path / "marker"), "sleep")
    fork = psutil.Process(what_it_was(tmp_path / "marker")["pid"])
    asked.send_signal(number)
    _, errors = asked.communicate(timeout=60)
    assert asked.returncode == status
    assert ("KeyboardInterrupt" in errors) == (number == signal.SIGINT)
    wait(lambda: gone(fork))


def test_a_fork_ends_with_the_process_that_asked(preloaded: Preloaded, tmp_path: Path) -> None:
    asked = preloaded.ask(str(tmp_path / "marker"), "sleep")
    fork = psutil.Process(what_it_was(tmp_path / "marker")["pid"])
    asked.kill()
    asked.communicate(timeout=60)
    wait(lambda: gone(fork))


def test_a_killed_fork_is_told_by_its_signal(preloaded: Preloaded, tmp_path: Path) -> None:
    asked = preloaded.ask(str(tmp_path / "marker"), "sleep")
    psutil.Process(what_it_was(tmp_path / "marker")["pid"]).kill()
    _, errors = asked.communicate(timeout=60)
    assert (asked.returncode, errors) == (128 + signal.SIGKILL, "error: killed by signal 9 (SIGKILL)\n")


def test_both_end_when_the_preloaded_process_is_killed(tmp_path: Path) -> None:
    own = start_in(tmp_path)
    asked = own.ask(str(tmp_path / "marker"), "sleep")
    fork = psutil.Process(what_it_was(tmp_path / "marker")["pid"])
    own.process.kill()
    _, errors = asked.communicate(timeout=60)
    assert asked.returncode == 1
    assert "run the same command again to continue" in errors
    wait(lambda: gone(fork))


def test_libraries_that_met_another_environment_are_not_used(preloaded: Preloaded, tmp_path: Path) -> None:
    asked = preloaded.ask(str(tmp_path / "marker"), "0", OMP_NUM_THREADS="3")
    _, errors = asked.communicate(timeout=60)
    assert errors.splitlines() == [
        "note: this stage loads the libraries itself, since another OMP_NUM_THREADS was set when they were loaded",
        "went on itself",
    ]
    assert not (tmp_path / "marker").exists()


def test_variables_that_no_library_reads_make_no_difference(preloaded: Preloaded, tmp_path: Path) -> None:
    shell = {"PS1": "$ ", "PROMPT_COMMAND": "date", "COLORTERM": "truecolor", "SSH_TTY": "/dev/pts/1", "EDITOR": "vi"}
    asked = preloaded.ask(str(tmp_path / "marker"), "0", **shell, MY_OWN="1", USER="somebody", TERM="dumb")
    assert asked.communicate(timeout=60)[1] == ""
    assert asked.returncode == 0


@pytest.mark.parametrize(
    "name",
    ["HOME", "TMPDIR", "LC_ALL", "LD_PRELOAD", "PYTHONPATH", "CUDA_VISIBLE_DEVICES", "HF_HOME", "MKL_NUM_THREADS"],
)
def test_variables_that_are_read_at_import_make_one(name: str) -> None:
    assert differing({"A": "1"}, {"A": "2", name: "x"}) == differing({name: "y"}, {name: "x"}) == [name]


def test_what_our_tracking_sets_while_a_chain_runs_makes_no_difference() -> None:
    code = "".join(path.read_text() for path in (ROOT / "pipeline_lib/tracking").glob("*.py"))
    names = re.findall(r'environ(?:\[|\.setdefault\()"(MLFLOW_\w+)"', code)
    assert {"MLFLOW_ENABLE_ASYNC_TRACE_LOGGING", "MLFLOW_HTTP_REQUEST_TIMEOUT"} <= {*names}
    assert [name for name in names if differing({}, {name: "x"})] == []


def test_without_a_preloaded_process_a_stage_does_its_work_itself(preloaded: Preloaded, tmp_path: Path) -> None:
    for nobody in ("", str(tmp_path / "nobody.sock")):
        asked = preloaded.ask(str(tmp_path / "marker"), "0", **{ADDRESS: nobody})
        assert asked.communicate(timeout=60)[1] == "went on itself\n"


def test_the_socket_is_its_owners_alone(preloaded: Preloaded) -> None:
    assert stat.S_IMODE(preloaded.socket.stat().st_mode) & 0o077 == 0
