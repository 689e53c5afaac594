"""The sandbox over HTTP: the same verdicts, and nothing for those without the token."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline_lib.sandbox import Executor, Job, Limits, SandboxUnavailable, Status
from pipeline_lib.sandbox.server import Bounds, SandboxServer

TOKEN = "a-token-for-the-tests"
TESTS = "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(2) == 3\n"
BOUNDS = Bounds(request_mb=1, jobs=50, rate=100.0, burst=200, silence_s=120.0)


def jobs(count: int) -> list[Job]:
    return [Job(str(n), f"def f(x):\n    return x + {n % 2}\n# {n}", TESTS, "f") for n in range(count)]


@pytest.fixture(scope="module")
def server() -> Iterator[SandboxServer]:
    with Executor(slots=2) as executor, SandboxServer(executor, TOKEN, port=0, bounds=BOUNDS) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def address(server: SandboxServer) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"


def ask(server: SandboxServer, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=120)
    connection.request(method, path, body, {"Authorization": f"Bearer {TOKEN}"} | headers)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


def test_the_same_verdicts_as_here(server: SandboxServer) -> None:
    with Executor("remote", address=address(server), token=TOKEN) as executor:
        verdicts = executor.run(jobs(20))
        assert [verdict.id for verdict in verdicts] == [str(n) for n in range(20)]
        assert [verdict.passed for verdict in verdicts] == [2 * (n % 2) for n in range(20)]
        assert all(verdict.backend.startswith("remote/process/") for verdict in verdicts)
        assert verdicts[0].cases[0].source == "assert candidate(1) == 2"
        assert executor.health()["isolation"] in ("namespaces", "seccomp")


def test_it_listens_on_this_machine_only(server: SandboxServer) -> None:
    assert server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize("header", ["", "Bearer wrong", f"Basic {TOKEN}", "Bearer ", f"bearer {TOKEN}"])
@pytest.mark.parametrize("path", ["/v1/health", "/v1/jobs", "/"])
def test_without_the_token(server: SandboxServer, header: str, path: str) -> None:
    method = "POST" if path == "/v1/jobs" else "GET"
    status, text = ask(server, method, path, Authorization=header)
    assert (status, text) == (401, "the token is missing or wrong\n")


def test_the_client_says_that_its_token_is_wrong(server: SandboxServer) -> None:
    with pytest.raises(SandboxUnavailable, match="401 the token is missing or wrong"):
        Executor("remote", address=address(server), token="another-token-of-length")


def test_a_token_must_be_long() -> None:
    with Executor(slots=1) as executor, pytest.raises(ValueError, match="16 characters"):
        SandboxServer(executor, "short", port=0)


def encoded(**changes: object) -> bytes:
    job = {"id": "1", "code": "def f(x): return x", "tests": TESTS, "entry_point": "f"} | changes
    return json.dumps({"jobs": [job]}).encode()


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b"not json", 400, "no jobs"),
        (b"\xff\xfe", 400, "no jobs"),
        (b"[]", 400, "no jobs"),
        (b'{"jobs": 5}', 400, "no jobs"),
        (b"[" * 100_000, 400, "no jobs"),
        (encoded(surprise=1), 400, "surprise"),
        (encoded(code=5), 400, "code is int"),
        (encoded(tests="x = 1"), 400, "no assert"),
        (encoded(limits={"cpu_s": 1000.0}), 400, "limits.cpu_s is 1000.0, at most 4.0"),
        (encoded(limits={"cpu_s": -1}), 400, "positive"),
        (json.dumps({"jobs": [json.loads(encoded())["jobs"][0]] * 2}).encode(), 400, "same id"),
        (b'{"jobs": [' + b",".join([encoded()[10:-2]] * 51) + b"]}", 413, "51 jobs, 50 are allowed"),
        (b"x" * ((1 << 20) + 1), 413, "1 MiB are allowed"),
    ],
)
def test_bad_requests(server: SandboxServer, body: bytes, status: int, text: str) -> None:
    try:
        found, answer = ask(server, "POST", "/v1/jobs", body)
    except (BrokenPipeError, ConnectionResetError):
        assert status == 413  # it did not even read it
        return
    assert (found, text in answer) == (status, True), answer


def test_unknown_paths_and_missing_lengths(server: SandboxServer) -> None:
    assert ask(server, "GET", "/etc/passwd")[0] == 404
    assert ask(server, "POST", "/v2/jobs", encoded())[0] == 404
    assert ask(server, "DELETE", "/v1/jobs")[0] == 501
    with socket.create_connection(server.server_address[:2], timeout=120) as plain:  # type: ignore[arg-type]
        plain.sendall(f"POST /v1/jobs HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        assert plain.recv(1000).startswith(b"HTTP/1.0 411")


def test_a_slow_sender_is_cut_off(server: SandboxServer) -> None:
    head = f"POST /v1/jobs HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 1000\r\n\r\n"
    with SandboxServer(server.executor, TOKEN, port=0, bounds=replace(BOUNDS, silence_s=1.0)) as strict:
        threading.Thread(target=strict.serve_forever, args=(0.05,), daemon=True).start()
        with socket.create_connection(strict.server_address[:2], timeout=120) as slow:  # type: ignore[arg-type]
            slow.sendall(head.encode() + b"{")
            assert slow.recv(1000) == b""
        strict.shutdown()


def test_too_many_requests(server: SandboxServer) -> None:
    bounds = Bounds(rate=0.001, burst=3)
    with SandboxServer(server.executor, TOKEN, port=0, bounds=bounds) as strict:
        threading.Thread(target=strict.serve_forever, args=(0.05,), daemon=True).start()
        statuses = [ask(strict, "GET", "/v1/health")[0] for _ in range(5)]
        strict.shutdown()
    assert statuses == [200, 200, 200, 429, 429]


def test_a_server_that_goes_away_and_comes_back(server: SandboxServer) -> None:
    first = SandboxServer(server.executor, TOKEN, port=0)
    port = int(first.server_address[1])
    thread = threading.Thread(target=first.serve_forever, args=(0.05,))
    thread.start()
    client = Executor("remote", address=f"http://127.0.0.1:{port}", token=TOKEN, patience_s=120)
    first.shutdown()
    thread.join()
    first.server_close()

    def come_back() -> None:
        time.sleep(0.5)
        second = SandboxServer(server.executor, TOKEN, port=port)
        threading.Thread(target=second.serve_forever, args=(0.05,), daemon=True).start()

    threading.Thread(target=come_back).start()
    assert [verdict.passed for verdict in client.run(jobs(6))] == [0, 2] * 3


def test_a_server_that_stays_away_is_an_infrastructure_error(server: SandboxServer) -> None:
    gone = SandboxServer(server.executor, TOKEN, port=0)
    threading.Thread(target=gone.serve_forever, args=(0.05,), daemon=True).start()
    client = Executor("remote", address=address(gone), token=TOKEN, patience_s=0.2)
    gone.shutdown()
    gone.server_close()
    verdicts = client.run(jobs(2))
    assert [verdict.status for verdict in verdicts] == [Status.INFRA_ERROR] * 2
    assert [verdict.fraction for verdict in verdicts] == [None, None]
    assert "does not answer" in verdicts[0].error


@pytest.mark.service
def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN + "\n")
    command = [sys.executable, "-m", "pipeline_lib.sandbox", "serve", "--port", "0", "--slots", "1"]
    command += ["--token-file", str(tmp_path / "token"), "--memory-mb", "128", "--most-jobs", "10"]
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        command, cwd=root, stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert process.stdout is not None
    where = process.stdout.readline().strip()
    with Executor(
        "remote", address=where, token_file=str(tmp_path / "token"), limits=Limits(memory_mb=128)
    ) as executor:
        assert [verdict.passed for verdict in executor.run(jobs(4))] == [0, 2] * 2
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 0
