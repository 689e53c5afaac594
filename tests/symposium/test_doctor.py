"""What `symposium doctor` says of a machine."""

import contextlib
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from flows import doctor
from flows.doctor import MISSING, OK, OPTIONAL, examine
from tasks.chain.graph import ChainError, chain_and_stale, check_targets
from tasks.chain.sharing import refusal
from tasks.services.new_project import ProjectError, make_project
from tests.http_server import HttpServer, Reply
from tests.needs import needs


def test_in_an_empty_folder_it_says_what_is_missing_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYMPOSIUM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    found = {finding.name: finding for finding in examine(tmp_path)}
    assert found["Python"].status == found["libraries"].status == OK
    assert (found["git"].status, found["project"].status) == (MISSING, MISSING)
    assert "`git init`" in found["git"].text and "no dvc.yaml" in found["project"].text
    subprocess.run(("git", "init", "-q"), cwd=tmp_path, check=True)  # as `symposium init` does
    (told,) = [finding for finding in examine(tmp_path) if finding.name == "git"]
    assert told.status == MISSING and "no commit; `git add -A`, `git commit" in told.text
    assert found["sandbox"].status == OK and "isolation" in found["sandbox"].text
    assert found["GPU"].status in (OK, OPTIONAL), "no GPU is no fault"


def test_a_folder_named_as_a_package_is_not_taken_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "not_there").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert doctor._package("Not there", "not_there", "nobody needs it").status == OPTIONAL


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LEAST_FREE_GB", 1e9)
    found = {finding.name: finding for finding in examine(tmp_path)}["disk"]
    assert found.status == MISSING and "GB free" in found.text


def test_a_project_with_git_and_dvc_is_whole(tmp_path: Path) -> None:
    for command in ("init -q", "-c user.name=a -c user.email=a@b commit -q --allow-empty -m first"):
        subprocess.run(f"git {command}", shell=True, cwd=tmp_path, check=True)
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "dvc.yaml").touch()
    found = {finding.name: finding for finding in examine(tmp_path)}
    assert found["git"].status == found["project"].status == OK


def test_vllm_is_found_in_an_environment_of_its_own(tmp_path: Path) -> None:
    def told() -> doctor.Finding:
        return {finding.name: finding for finding in examine(tmp_path)}["vLLM"]

    assert told().status == OPTIONAL and "name its interpreter in rollouts.python" in told().text
    python = tmp_path / ".venv-vllm/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho 0.99\n")
    python.chmod(0o755)
    assert (told().status, told().text) == (OK, "0.99, in .venv-vllm")


def test_the_store_is_tried(empty_project: Path, tmp_path: Path) -> None:
    def told() -> doctor.Finding:
        return {finding.name: finding for finding in examine(project)}["store"]

    shutil.copytree(empty_project, project := tmp_path / "project")
    assert told().status == OPTIONAL and "dvc remote add --default" in told().text
    add = ("remote", "add", "-q", "--default", "store", str(tmp_path / "store"))
    subprocess.run((sys.executable, "-m", "dvc", *add), cwd=project, check=True)
    assert told().status == OPTIONAL and "dvc remote modify store verify true" in told().text, "or damage is not seen"
    modify = ("remote", "modify", "-q", "store", "verify", "true")
    subprocess.run((sys.executable, "-m", "dvc", *modify), cwd=project, check=True)
    assert told().status == OK and "MB/s" in told().text
    assert not list((tmp_path / "store").iterdir()), "what was tried is removed"
    (tmp_path / "store").rmdir()
    (tmp_path / "store").write_text("no folder")
    assert told().status == OPTIONAL and told().text.startswith("a file could not be written: ")


def test_a_folder_that_is_named_as_an_address_is_no_store(empty_project: Path, tmp_path: Path) -> None:
    shutil.copytree(empty_project, project := tmp_path / "project")
    add = ("remote", "add", "-q", "--default", "store", f"file://{tmp_path}/store")
    subprocess.run((sys.executable, "-m", "dvc", *add), cwd=project, check=True)
    (store,) = [finding for finding in examine(project) if finding.name == "store"]
    assert store.status == OPTIONAL and "give the path, without file:" in store.text


def test_a_folder_in_which_dvc_fails_is_refused_in_words(empty_project: Path, tmp_path: Path) -> None:
    """Its progress bar takes what is in braces for a field: a run ended in its traceback, with settings changed."""
    shutil.copytree(empty_project, project := tmp_path / "lab {new}")
    (project / "dvc.yaml").touch()
    (found,) = [finding for finding in examine(project) if finding.name == "project"]
    assert found.status == MISSING and "DVC fails in a folder with { or } in its path, as /" in found.text
    for refused in (check_targets, chain_and_stale):
        with pytest.raises(ChainError, match="DVC fails in a folder"):
            refused(project, ())
    with pytest.raises(ProjectError, match="DVC fails in a folder"):
        make_project(new := tmp_path / "{}")
    assert not new.exists()
    assert "DVC fails with { or } in an address" in refusal("/stores/{}")


class TakesAnything(BaseHTTPRequestHandler):
    """A store that resembles S3, and writes under every condition."""

    protocol_version = "HTTP/1.1"  # clients wait for "100 Continue" before they send a file
    files: ClassVar[dict[str, bytes]] = {}

    def do_PUT(self) -> None:
        self.files[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self._send()

    def do_GET(self) -> None:
        path, _, question = self.path.partition("?")
        if "list-type" not in question:
            return self._send(self.files.get(path))
        sizes = {name.removeprefix("/lab/"): len(content) for name, content in self.files.items()}
        listed = "".join(f"<Contents><Key>{key}</Key><Size>{n}</Size></Contents>" for key, n in sizes.items())
        return self._send(f"<ListBucketResult>{listed}</ListBucketResult>".encode())

    def do_HEAD(self) -> None:
        self._send(self.files.get(self.path))

    def do_POST(self) -> None:  # removes many at once, of which there is one
        self.rfile.read(int(self.headers["Content-Length"]))
        self.files.clear()
        self._send(b"<DeleteResult/>")

    def _send(self, content: bytes | None = b"") -> None:
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content or b"")

    def log_message(self, *_: object) -> None:
        return


@needs("team servers")
def test_a_store_that_takes_what_s3_refuses_is_told(
    empty_project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(empty_project, project := tmp_path / "project")
    for arguments in (("add", "--default", "store", "s3://lab"), ("modify", "store", "verify", "true")):
        subprocess.run((sys.executable, "-m", "dvc", "remote", *arguments), cwd=project, check=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), TakesAnything)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")  # else files come in chunks with checksums
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "lab")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with contextlib.closing(server.socket):
        told = doctor._store(project)
        server.shutdown()
    assert told.status == OPTIONAL
    assert "it takes a second file of the same name" in told.text and "checksum of another one, which S3" in told.text
    assert not TakesAnything.files, "what was tried is removed"


class WithPasswords(HttpServer):
    """Prefect and MLflow in one, which are well, and which nobody may use."""

    def get(self, path: str) -> Reply:
        return Reply(200 if path in ("/api/health", "/health") else 401)


def test_servers_of_a_team_are_asked_with_the_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def told() -> tuple[str, str]:
        (found,) = [finding for finding in examine(tmp_path) if finding.name == "servers"]
        return found.status, found.text

    for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING", "MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_USERNAME"):
        monkeypatch.delenv(name, raising=False)
    with contextlib.closing(WithPasswords()) as server:
        monkeypatch.setenv("PREFECT_API_URL", f"{server.url}/api")
        assert told()[0] == MISSING and "wants a password; set PREFECT_API_AUTH_STRING" in told()[1]
        monkeypatch.setenv("PREFECT_API_AUTH_STRING", "lab:wrong-password")
        assert "refuses the password" in told()[1] and "wrong-password" not in told()[1]
        monkeypatch.delenv("PREFECT_API_URL")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
        assert told()[0] == MISSING and "wants a password; set MLFLOW_TRACKING_USERNAME" in told()[1]
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "lab")
        assert "refuses name or password" in told()[1]
    assert "does not answer (no connection)" in told()[1]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    assert told()[0] == OK
