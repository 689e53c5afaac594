"""Which processes are known to have ended: by more than the name of their host."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from pipeline_lib.tracking import processes
from pipeline_lib.tracking.processes import is_gone, own_process


def named(host: str | None = None, system: str = "machine", boot: str = "boot", namespace: str = "1") -> str:
    """Return the name of a process that does not exist here, started before this machine."""
    return (
        f"{host or processes.socket.gethostname()}/{system}/{boot}/{namespace}:{2**22 + 1}:{psutil.boot_time() - 9:.2f}"
    )


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    place = processes._Place(processes.socket.gethostname(), "machine", "boot", "1")
    monkeypatch.setattr(processes, "_here", lambda: place)


def test_a_process_that_runs_is_there_and_one_that_ended_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    name = own_process(child.pid)
    assert not is_gone(name) and not is_gone(own_process())
    child.communicate(b"\n")
    assert is_gone(name)


@pytest.mark.usefixtures("here")
def test_a_container_of_the_same_name_is_another_machine() -> None:
    assert is_gone(named())
    assert not is_gone(named(namespace="2")), "process ids of another namespace"
    assert not is_gone(named(system="other", boot="another")), "a machine with the same name"
    assert not is_gone(named(host="elsewhere", boot="another"))
    assert not is_gone(named(system="", boot="another")), "nobody knows whether it is the same machine"
    assert not is_gone("what is this") and not is_gone("a:b:c")


@pytest.mark.usefixtures("here")
def test_what_ran_before_the_machine_was_started_anew_is_gone() -> None:
    assert is_gone(named(boot="earlier"))
    after = named(boot="earlier").rsplit(":", 1)[0] + f":{psutil.boot_time() + 60:.2f}"
    assert not is_gone(after), "a copy of this machine, which started later"
