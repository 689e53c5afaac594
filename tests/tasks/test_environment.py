"""The environment that every entry point gets, seen from fresh processes."""

import getpass
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_lib.tracking.processes import own_process
from tasks.services import process_environment as environment

SHOW = """
import json, os, sys
import flows
assert not [name for name in ("prefect", "mlflow", "torch", "dvc") if name in sys.modules]
print(json.dumps(dict(os.environ)))
"""


def fresh(folder: Path, code: str = SHOW, **changes: str) -> dict[str, str]:
    """Run ``code`` in a new process that starts with a bare environment in ``folder``; return the JSON it prints."""
    variables = {
        "PATH": os.defpath,
        "HOME": os.environ["HOME"],
        "PYTHONPATH": str(Path(environment.__file__).parents[1]),
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**variables, **changes},
        capture_output=True,
        text=True,
        check=True,
    )
    shown: dict[str, str] = json.loads(done.stdout)
    return shown


ASK_OWN_SERVER = """
import http.server, json, threading
import flows
from tasks.services.process_environment import answers
class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *said): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Healthy)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(json.dumps({"answers": answers(f"http://127.0.0.1:{server.server_port}", "mlflow")}))
"""


def test_a_proxy_does_not_stand_before_servers_of_this_machine(tmp_path: Path) -> None:
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "ALL_PROXY"), "http://127.0.0.1:9")
    assert fresh(tmp_path, ASK_OWN_SERVER, **proxies) == {"answers": True}


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({}, "127.0.0.1,localhost"),
        ({"NO_PROXY": "lab, localhost"}, "lab,localhost,127.0.0.1"),
        ({"no_proxy": "lab"}, "lab,127.0.0.1,localhost"),
        ({"no_proxy": "*"}, "*"),
    ],
)
def test_hosts_that_need_no_proxy_are_kept(tmp_path: Path, given: dict[str, str], names: str) -> None:
    shown = fresh(tmp_path, **given)
    assert shown["no_proxy"] == shown["NO_PROXY"] == names


def test_a_user_whom_the_system_does_not_know_gets_a_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As with ``docker run --user 12345``: DVC ended with `uid not found`."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    monkeypatch.setenv("SYMPOSIUM_HOME", str(tmp_path))
    environment.prepare()
    assert getpass.getuser() == os.environ["USER"] == f"user-{os.getuid()}"


def test_a_folder_that_cannot_be_written_to_is_named_without_a_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import flows"],
        env={**os.environ, "SYMPOSIUM_HOME": "/dev/null/local"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and "/dev/null/local" in done.stderr and "SYMPOSIUM_HOME" in done.stderr
    assert "Traceback" not in done.stderr


def test_importing_flows_switches_telemetry_off_and_keeps_state_in_the_project(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").touch()
    (tmp_path / "below").mkdir()
    shown = fresh(tmp_path / "below")
    assert shown["DO_NOT_TRACK"] == "true"
    assert shown["DVC_NO_ANALYTICS"] == "1"
    assert shown["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
    assert shown["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert shown["OMP_NUM_THREADS"] == "1" and shown["OMP_WAIT_POLICY"] == "passive"
    assert shown["GOMP_SPINCOUNT"] == "3000"
    assert shown["SYMPOSIUM_HOME"] == str(tmp_path / ".symposium")
    assert shown["PREFECT_HOME"] == str(tmp_path / ".symposium" / "prefect")
    assert shown["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)


def test_the_tools_themselves_agree_that_telemetry_is_off_and_where_home_is(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").touch()
    code = """
import json
import flows
from prefect.settings import get_current_settings
from mlflow.telemetry.utils import is_telemetry_disabled
from dvc.analytics import is_enabled
settings = get_current_settings()
print(json.dumps({
    "prefect": settings.server.analytics_enabled, "home": str(settings.home),
    "timeout": settings.server.ephemeral.startup_timeout_seconds, "ephemeral": settings.server.ephemeral.enabled,
    "mlflow": is_telemetry_disabled(), "dvc": is_enabled(), "heartbeat": settings.flows.heartbeat_frequency,
}))
"""
    assert fresh(tmp_path, code) == {
        "prefect": False,
        "home": str(tmp_path / ".symposium" / "prefect"),
        "timeout": 180,
        "ephemeral": True,
        "mlflow": True,
        "dvc": False,
        "heartbeat": 30,
    }


def test_what_the_caller_has_set_wins(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").touch()
    given = {"PREFECT_HOME": "/elsewhere", "OMP_NUM_THREADS": "3", "PREFECT_API_URL": "http://host:1/api"}
    shown = fresh(tmp_path, **given)
    assert given.items() <= shown.items()


def test_an_experiments_workspace_uses_the_folders_of_the_project_it_came_from(tmp_path: Path) -> None:
    workspace = tmp_path / ".dvc" / "tmp" / "exps" / "tmpx1y2z3"
    workspace.mkdir(parents=True)
    (workspace / "params.yaml").touch()
    (tmp_path / "params.yaml").touch()
    assert environment.project_root(workspace) == tmp_path
    assert fresh(workspace)["SYMPOSIUM_HOME"] == str(tmp_path / ".symposium")


def test_only_a_server_that_was_announced_and_answers_is_used(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").touch()
    (tmp_path / ".symposium").mkdir()
    announced = tmp_path / ".symposium" / "servers.json"
    assert "PREFECT_API_URL" not in fresh(tmp_path)
    announced.write_text(json.dumps({"prefect": {"url": "http://127.0.0.1:9", "process": own_process()}}))
    assert "PREFECT_API_URL" not in fresh(tmp_path)
    announced.write_text("half a fi")
    assert "PREFECT_API_URL" not in fresh(tmp_path)


def test_children_do_not_take_themselves_for_the_parents_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT__FLOW_RUN_ID", "11111111-1111-1111-1111-111111111111")
    variables = environment.child_environment(EXTRA="1")
    assert "PREFECT__FLOW_RUN_ID" not in variables
    assert variables["EXTRA"] == "1"
    assert variables["SYMPOSIUM_HOME"] == os.environ["SYMPOSIUM_HOME"]
