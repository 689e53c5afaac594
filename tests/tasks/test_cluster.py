"""The servers of a team: what is said before any of them starts (tests/flows/test_pool.py runs them)."""

import importlib
import json
import re
import shlex
import shutil
import socket
import sys
from pathlib import Path

import pytest
import yaml

import flows.cluster
from tasks.cluster.settings import Cluster, ClusterError, Ports, drawn, given
from tasks.services.new_project import FILES
from tests.flows.team_servers import free_ports
from tests.needs import needs

ADDRESSES = Cluster(Path("servers"), name="lab").addresses


def variables(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))


def test_drawn_passwords_are_what_the_servers_accept_and_never_the_same() -> None:
    first, second = (variables(drawn(ADDRESSES)) for _ in range(2))
    found = given(first)
    assert first["PREFECT_API_URL"] == "http://lab:4200/api" and first["AWS_ENDPOINT_URL_S3"] == "http://lab:8333"
    assert found.prefect_api_auth_string == first["PREFECT_API_AUTH_STRING"]
    secret = [name for name in first if name not in ADDRESSES and not name.endswith(("USERNAME", "KEY_ID"))]
    assert len(secret) == 4 and all(first[name] != second[name] for name in secret)
    assert list(first)[-1] == "PGPASSWORD", "the docs say that the last line is for the servers only"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"PGPASSWORD": None, "AWS_ACCESS_KEY_ID": ""}, "not set: AWS_ACCESS_KEY_ID, PGPASSWORD; `symposium cluster"),
        ({"MLFLOW_TRACKING_PASSWORD": "short"}, "MLFLOW_TRACKING_PASSWORD: a password has at least 12 characters"),
        ({"PREFECT_API_AUTH_STRING": "symposium:short"}, "PREFECT_API_AUTH_STRING: a password has at least 12"),
        ({"PREFECT_API_AUTH_STRING": "a-long-password-alone"}, "PREFECT_API_AUTH_STRING has the form user:"),
    ],
)
def test_passwords_that_cannot_be_used_are_refused(changed: dict[str, str | None], says: str) -> None:
    environment = {**variables(drawn(ADDRESSES)), **changed}
    with pytest.raises(ClusterError, match="^" + says.split("`")[0]) as refused:
        given({name: value for name, value in environment.items() if value is not None})
    assert says in str(refused.value)
    assert "short" not in str(refused.value) and "a-long-password" not in str(refused.value), "a secret in a message"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    for name, value in variables(drawn(ADDRESSES)).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["symposium cluster", *arguments])
    with pytest.raises(SystemExit) as ended:
        flows.cluster.main()
    return ended.value.code


@needs("team servers")
def test_what_cannot_be_done_is_said_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    new, backup = tmp_path / "servers", tmp_path / "backup"
    backup.mkdir()
    (tmp_path / "used").mkdir()
    (tmp_path / "used/file").touch()
    (backup / "backup.json").write_text(json.dumps({"kind": "symposium cluster backup 2"}))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for arguments, says in {
            **{
                (
                    "start",
                    "--folder",
                    str(new),
                    *free_ports(),
                    f"--{name}-port",
                    port,
                ): f"port {port} is in use; --{name}-port names"
                for name in ("postgres", "mlflow")
            },
            ("restore", str(tmp_path / "none"), "--folder", str(new)): "holds no complete backup",
            ("restore", str(backup), "--folder", str(new)): "is of another kind: symposium cluster backup 2",
            ("restore", str(backup), "--folder", str(tmp_path / "used")): "used is not empty",
            ("backup", str(tmp_path / "used")): "used is not empty",
        }.items():
            assert run(monkeypatch, *arguments) == 1
            assert says in " ".join(capsys.readouterr().err.split())
    assert not new.exists(), "a backup could not be restored there"


@needs("team servers")
def test_a_disk_that_is_too_small_for_a_store_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    free = shutil.disk_usage(tmp_path).free
    monkeypatch.setattr("tasks.cluster.store.LEAST", 2 * free)
    assert run(monkeypatch, "start", "--folder", str(tmp_path / "new"), *free_ports()) == 1
    assert "GiB free; a store needs" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "new").exists()


def test_a_machine_without_the_servers_is_told_what_installs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("servers", "backup", "database", "store"):
        monkeypatch.delitem(sys.modules, f"tasks.cluster.{name}", raising=False)
        monkeypatch.delattr(f"tasks.cluster.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg", None)  # importing it raises ImportError
    monkeypatch.setitem(sys.modules, "boto3", None)
    assert run(monkeypatch, "start", "--folder", str(tmp_path)) == 1
    assert "is not installed; `make cluster` installs what the servers need" in capsys.readouterr().err


def test_make_cluster_gives_both_programs_the_same_options() -> None:
    options = ["--host", "0.0.0.0", "--name", "lab", "--folder", "servers", "--prefect-port", "4300"]
    found = [vars(flows.cluster.parser().parse_args([command, *options])) for command in ("passwords", "start")]
    assert {**found[0], "command": ""} == {**found[1], "command": ""}


def test_the_ports_of_the_store_do_not_meet_the_others() -> None:
    ports = Ports()
    assert not set(range(ports.store, ports.store + 8)) & {ports.prefect, ports.mlflow, ports.postgres}


@needs("team servers")
def test_servers_that_do_not_answer_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody listens
        port = str(closed.getsockname()[1])
        ports = [word for name in Ports._fields for word in (f"--{name}-port", port)]
        assert run(monkeypatch, "status", *ports) == 1
    assert capsys.readouterr().out.count("does not answer") == len(Ports._fields)


def test_the_container_of_the_servers_runs_their_own_commands_and_is_for_this_machine_only_unless_asked() -> None:
    root = Path(flows.cluster.__file__).parents[1]
    (service,) = yaml.safe_load((root / "compose.yaml").read_text())["services"].values()
    for command in (service["command"].replace("${SYMPOSIUM_NAME:-127.0.0.1}", "lab"), "status"):
        flows.cluster.parser().parse_args(shlex.split(command))
    assert service["healthcheck"]["test"] == ["CMD", "symposium", "cluster", "status"]
    ports = [f"${{SYMPOSIUM_ADDRESS:-127.0.0.1}}:{port}:{port}" for port in Ports()[:3]]
    assert service["ports"] == ports, "the database is for nobody else"
    first, *lines = (root / ".dockerignore").read_text().splitlines()
    sent = {line[1:] for line in lines if line.startswith("!")}
    assert sent >= {*FILES, "pyproject.toml", "setup.py", "README.md", "LICENSE", "symposium", "flows", "tasks"}
    assert first == "*" and not [
        name
        for name in ("cluster.env", ".git", ".venv", ".symposium", ".dvc/config.local", ".dvc/cache", "models")
        if any(Path(name).is_relative_to(allowed) for allowed in sent)
    ], "no secret and no result may come into the image"
    recipe = (root / "Dockerfile").read_text()
    assert re.findall("^FROM (.*)", recipe, re.MULTILINE) == ["python:3.11-slim-bookworm"]
    assert recipe.count("pip install") == recipe.count("--no-deps") == 3, "the locks name every version"
    assert recipe.count("\nUSER symposium\n") == 1 and "USER root" not in recipe


@needs("team servers")
def test_docker_gives_every_server_its_time_to_end() -> None:
    root = Path(flows.cluster.__file__).parents[1]
    (service,) = yaml.safe_load((root / "compose.yaml").read_text())["services"].values()
    servers = importlib.import_module("tasks.cluster.servers")
    assert 60 * int(service["stop_grace_period"].removesuffix("m")) > len(Ports._fields) * servers.STOP_S
