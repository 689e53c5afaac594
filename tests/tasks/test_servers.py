"""Ports, announcements and failures of servers; that real ones work is seen where they are used."""

import json
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

from flows.doctor import MISSING, _servers
from pipeline_lib.tracking.processes import own_process
from tasks.services import servers
from tasks.services.process_environment import answers, places, server_url
from tasks.services.processes import start


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYMPOSIUM_HOME", str(tmp_path))


def test_a_taken_port_is_not_fought_over() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert servers.free_port(port) > port


def test_another_program_behind_a_port_is_no_answer() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()

        def greet() -> None:
            for _ in range(2):
                connection, _ = other.accept()
                with connection:
                    connection.sendall(b"220 no HTTP here\r\n")
                    connection.recv(1024)

        thread = threading.Thread(target=greet)
        thread.start()
        url = f"http://127.0.0.1:{other.getsockname()[1]}"
        assert not answers(url, "mlflow") and servers.status_of(url, "") == 0
        thread.join()


def test_all_taken_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: socket.socket, address: tuple[str, int]) -> None:
        raise OSError("taken")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(servers.ServerError, match=r"ports 4200 to 4249 on 127\.0\.0\.1 are all in use"):
        servers.free_port(4200)


def test_a_server_that_ends_is_reported_with_its_log(tmp_path: Path) -> None:
    process = start([sys.executable, "-c", "raise SystemExit(3)"], {}, tmp_path, subprocess.DEVNULL)
    server = servers.Server("mlflow", "http://127.0.0.1:9", process, tmp_path / "mlflow.log")
    with pytest.raises(servers.ServerError, match=r"mlflow server has ended \(status 3\); see .*mlflow\.log"):
        server.wait_until_healthy()


def test_a_server_that_ends_on_a_full_disk_is_reported_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "_FULL_BYTES", 1 << 60)
    process = start([sys.executable, "-c", "raise SystemExit(3)"], {}, tmp_path, subprocess.DEVNULL)
    server = servers.Server("prefect", "http://127.0.0.1:9", process, tmp_path / "prefect.log")
    with pytest.raises(servers.ServerError, match=r"prefect server has ended \(status 3\); the disk is full"):
        server.wait_until_healthy()


def test_a_server_that_never_answers_is_ended_and_reported(tmp_path: Path) -> None:
    process = start([sys.executable, "-c", "import time; time.sleep(99)"], {}, tmp_path, subprocess.DEVNULL)
    server = servers.Server("prefect", "http://127.0.0.1:9", process, tmp_path / "prefect.log")
    with pytest.raises(servers.ServerError, match="does not answer after 0 s"):
        server.wait_until_healthy(0.1)
    assert process.poll() is not None


def test_somebody_elses_server_on_the_port_is_not_taken_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "answers", lambda url, name: True)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        process = start([sys.executable, "-c", "import time; time.sleep(99)"], {}, tmp_path, subprocess.DEVNULL)
        server = servers.Server("prefect", f"http://127.0.0.1:{other.getsockname()[1]}", process, tmp_path / "log")
        with pytest.raises(servers.ServerError, match="does not answer"):
            server.wait_until_healthy(0.3)


def test_the_server_of_a_killed_process_is_not_believed_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.services.process_environment.answers", lambda url, name: True)
    with servers.announced({"prefect": "http://127.0.0.1:4200"}):
        assert server_url("prefect") == "http://127.0.0.1:4200"
        gone = places().servers.read_text().replace(own_process(), own_process().rsplit(":", 1)[0] + ":1.00")
        places().servers.write_text(gone)
        assert server_url("prefect") is None


def test_announcements_end_with_the_block_but_never_take_a_later_ones() -> None:
    with servers.announced({"prefect": "http://127.0.0.1:9"}):
        assert json.loads(places().servers.read_text())["prefect"]["url"] == "http://127.0.0.1:9"
        assert server_url("prefect") is None, "it is announced, but it does not answer"
    assert not places().servers.exists()
    with servers.announced({"prefect": "http://127.0.0.1:9"}):
        places().servers.write_text('{"prefect": {"url": "http://127.0.0.1:10", "process": "a:1:1"}}')
    assert "127.0.0.1:10" in places().servers.read_text()


def test_a_server_that_was_named_but_is_down_is_an_error_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    with (
        pytest.raises(servers.ServerError, match=r"http://127\.0\.0\.1:9/api does not answer; start it \(`make ui`\)"),
        servers.prefect_server(),
    ):
        pass


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("PREFECT_API_URL", "server:4200/api", "begins with http:// or https:// and ends with /api"),
        ("PREFECT_API_URL", "http://127.0.0.1:9", "ends with /api, as http://server:4200/api"),
        ("PREFECT_API_URL", "http://127.0.0.1:9/api/", "ends with /api"),
        (
            "PREFECT_API_URL",
            "http://lab:secret@127.0.0.1:9/api",
            "password are in PREFECT_API_AUTH_STRING",
        ),
        ("MLFLOW_TRACKING_URI", "banana", "MLFLOW_TRACKING_URI=banana is no address of MLflow"),
        ("MLFLOW_TRACKING_URI", "server:5000", "it is that of a server, as http://server:5000"),
        ("MLFLOW_TRACKING_URI", "http://127.0.0.1:port", "http://127.0.0.1:port is no address"),
        ("MLFLOW_TRACKING_URI", "file:///tmp/runs", "of a database, as sqlite:////folder/mlflow.db"),
        ("MLFLOW_TRACKING_URI", "lab:secret@server:5000", r"=\*\*\*@server:5000 is .* in MLFLOW_TRACKING_USERNAME and"),
    ],
)
def test_an_address_that_can_be_none_is_named_with_what_is_one(
    name: str, value: str, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Prefect asked addresses without /api in vain, and MLflow made a folder of a name."""
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv(name, value)
    with pytest.raises(servers.ServerError, match=told) as said, servers.prefect_server():
        pass
    assert str(said.value).startswith(f"{name}=") and "secret" not in str(said.value)
    found = _servers(tmp_path)
    assert (found.status, found.text) == (MISSING, str(said.value))


def test_a_signal_while_prefect_is_imported_ends_a_run_with_words_alone() -> None:
    program = """
import os, signal
import prometheus_client
from tasks.runtime.exit_status import explained, sigterm_interrupts
from tasks.services.servers import starting_prefect_server

class Counter(prometheus_client.Counter):
    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        os.kill(os.getpid(), signal.SIGTERM)

prometheus_client.Counter = Counter  # each can be made once in a process
with explained(), sigterm_interrupts(), starting_prefect_server():
    import flows.chain
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.stderr, ended.returncode) == ("interrupted; run the same command again to continue\n", 143)


@pytest.mark.service
def test_a_server_with_a_password_is_used_with_it_and_else_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_SERVER_API_AUTH_STRING", "lab:right")
    server = servers.start_prefect(servers.any_port(), ui=False)
    try:
        server.wait_until_healthy()
        address = f"{server.url}/api"
        with pytest.raises(servers.ServerError, match="wants a password; set PREFECT_API_AUTH_STRING=user:password"):
            servers.require(address)
        monkeypatch.setenv("PREFECT_API_AUTH_STRING", "lab:wrong")
        with pytest.raises(servers.ServerError, match="refuses the password; correct PREFECT_API_AUTH_STRING") as told:
            servers.require(address)
        assert "wrong" not in str(told.value), "it is not shown"
        monkeypatch.setenv("PREFECT_API_AUTH_STRING", "lab:right")
        servers.require(address)
    finally:
        server.stop()


@pytest.mark.service
def test_the_server_of_a_chain_has_no_services_for_others_but_those_that_record(prefect: str) -> None:
    with urllib.request.urlopen(f"{prefect}/api/admin/settings") as reply:
        services = json.load(reply)["server"]["services"]
    assert {name for name, values in services.items() if values["enabled"]} == {"event_persister", "task_run_recorder"}
