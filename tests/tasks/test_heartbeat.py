"""A training process that was stopped ends all, in words; one that takes long, or is done earlier, does not."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.services.heartbeat import MISSED
from tests.needs import ROOT

LIMIT_S = 0.1 * MISSED
FIRST, SECOND = "10.213.7.1", "10.213.7.2"


class Ranks:
    """Two training processes that find each other by variables; the first one holds the store."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = str(free.getsockname()[1])
        self.logs = [folder / "rank-0", folder / "rank-1"]
        self.networks: list[str] = []  # of each rank, if it has one of its own
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str, **more: str) -> "Ranks":
        first = FIRST if self.networks else "127.0.0.1"
        variables = {"WORLD_SIZE": "2", "MASTER_ADDR": first, "MASTER_PORT": self.port, **more}
        for rank, log in enumerate(self.logs):
            with log.open("wb") as file:
                network = ["ip", "netns", "exec", self.networks[rank]] if self.networks else []
                command = [*network, sys.executable, "-m", "tests.tasks.beating", *arguments]
                environment = os.environ | variables | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
                environment |= {"RANK": str(rank)}
                self.processes.append(
                    subprocess.Popen(command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT)
                )
        return self

    def has_begun(self, rank: int) -> None:
        while "has begun" not in self.logs[rank].read_text():
            assert self.processes[rank].poll() is None, self.logs[rank].read_text()
            time.sleep(0.1)

    def ends(self, rank: int, within_s: float = 60) -> tuple[int, str]:
        end = time.monotonic() + within_s
        while (status := self.processes[rank].poll()) is None:
            assert time.monotonic() < end, self.logs[rank].read_text()
            time.sleep(0.1)
        return status, self.logs[rank].read_text()


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    made = Ranks(tmp_path)
    yield made
    for process in made.processes:
        process.kill()
        process.wait()


@pytest.fixture
def apart(ranks: Ranks) -> Iterator[Ranks]:
    """The same in two network namespaces, where the address of the machine's name is that of no other one."""
    name = f"sym{os.getpid()}"
    ranks.networks = [f"{name}-0", f"{name}-1"]
    try:
        for network in ranks.networks:
            ip("netns", "add", network)
        ip("-n", f"{name}-0", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", f"{name}-1")
        for network, address in zip(ranks.networks, (FIRST, SECOND), strict=True):
            ip("-n", network, "addr", "add", f"{address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", network, "link", "set", device, "up")
        yield ranks
    finally:
        for process in ranks.processes:
            process.kill()
        for network in ranks.networks:
            subprocess.run(("ip", "netns", "delete", network), check=False)


def ip(*arguments: str) -> None:
    subprocess.run(("ip", *arguments), check=True)


@pytest.mark.needs("networks")
def test_machines_find_each_other_and_one_that_is_cut_off_ends_all(apart: Ranks) -> None:
    apart.start("sleep", "1000")
    for rank in (0, 1):
        apart.has_begun(rank)
    ip("-n", apart.networks[1], "link", "set", "eth0", "down")
    for rank in (0, 1):
        status, said = apart.ends(rank)
        assert status == 1 and "has not answered since" in said and "without a network" in said, said


@pytest.mark.needs("networks")
def test_machines_that_cannot_reach_each_other_say_so(apart: Ranks) -> None:
    """By default gloo would wait for half an hour in one of them."""
    apart.start("sleep", "0", GLOO_SOCKET_IFNAME="lo")
    for rank in (0, 1):
        status, said = apart.ends(rank)
        assert status == 1 and "error: the training processes have not reached each other: " in said, said
        assert "GLOO_SOCKET_IFNAME" in said and "Traceback" not in said


def test_a_first_machine_that_has_no_address_is_told(ranks: Ranks) -> None:
    ranks.start(MASTER_ADDR="first.invalid")
    for rank in (0, 1):
        status, said = ranks.ends(rank)
        assert status == 1 and "error: the training processes have not reached each other: " in said, said
        assert "Traceback" not in said


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_stopped_rank_ends_all_and_does_not_go_on_when_it_wakes(ranks: Ranks, stopped: int) -> None:
    ranks.start("sleep", "1000")
    for rank in (0, 1):
        ranks.has_begun(rank)
    ranks.processes[stopped].send_signal(signal.SIGSTOP)
    status, said = ranks.ends(1 - stopped)
    assert status == 1 and "together" not in said
    who = f"training process {stopped} on {socket.gethostname()}"
    if stopped == 0:  # it also holds the store
        who = f"({who}|the store of the training processes.*)"
    assert re.search(rf"^error: {who} has not answered since \d\d:\d\d:\d\d: stopped", said, re.MULTILINE), said
    assert "The same command continues" in said
    ranks.processes[stopped].send_signal(signal.SIGCONT)
    status, said = ranks.ends(stopped)
    assert status == 1 and "error: " in said and "together" not in said and "Traceback" not in said, said


def test_who_works_longer_than_the_limit_or_leaves_later_ends_nothing(ranks: Ranks) -> None:
    ranks.start("everything", str(1.5 * LIMIT_S))
    for rank in (0, 1):
        assert ranks.ends(rank)[0] == 0, ranks.logs[rank].read_text()


def test_a_machine_on_which_all_slept_goes_on(ranks: Ranks) -> None:
    ranks.start("sleep", "1")
    for signals in (signal.SIGSTOP, signal.SIGCONT):
        for rank in (0, 1):
            ranks.has_begun(rank)
            ranks.processes[rank].send_signal(signals)
        if signals == signal.SIGSTOP:
            with pytest.raises(subprocess.TimeoutExpired):
                ranks.processes[0].wait(3 * LIMIT_S)
    for rank in (0, 1):
        assert ranks.ends(rank)[0] == 0, ranks.logs[rank].read_text()
