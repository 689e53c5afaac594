"""A run on a pool of Prefect's type docker, whose worker starts a container for it in a real daemon."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
import yaml
from prefect import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.settings import temporary_settings

from tests.flows.project import ROOT, SMALL, call, make_project
from tests.flows.toy_project import commit, started, wait_for, words
from tests.needs import needs
from tests.sandbox.test_docker import Daemon

pytestmark = [needs("dockerd"), needs("prefect-docker"), pytest.mark.service, pytest.mark.timeout(900)]

POOL, IMAGE, STATE = "containers", "empty", "state"


@pytest.fixture
def containers(monkeypatch: pytest.MonkeyPatch) -> Iterator[docker.DockerClient]:
    """A client of a daemon that has an image without anything: containers are lent this machine's programs."""
    daemon = Daemon(folder := Path("/tmp") / f"symposium-pool-{os.getpid()}")  # a socket's path must be short
    client = docker.DockerClient(base_url=(host := daemon.start()))
    monkeypatch.setenv("DOCKER_HOST", host)
    client.api.import_image_from_data(b"\0" * 10240, repository=IMAGE)
    yield client
    client.close()
    daemon.stop()
    shutil.rmtree(folder, ignore_errors=True)


def make_pool(place: Path) -> None:
    """Make the pool, whose containers see ``place`` and, without writing there, programs."""
    lent = ["/usr", "/bin", "/lib", "/lib64", "/etc", sys.base_prefix, sys.prefix, str(ROOT)]
    settings = {
        "command": "{{ command }}",
        "name": "{{ name }}",
        "image": IMAGE,
        "image_pull_policy": "Never",
        "network_mode": "host",
        "volumes": [*(f"{folder}:{folder}:ro" for folder in lent), f"{place}:{place}"],
        "env": {"PATH": f"{sys.prefix}/bin:/usr/bin", "HOME": str(place), "SYMPOSIUM_HOME": str(place / STATE)},
    }
    template = {"job_configuration": settings, "variables": {"properties": {key: {} for key in ("command", "name")}}}
    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name=POOL, type="docker", base_job_template=template))


def test_a_run_in_a_container_comes_back_as_an_experiment(
    tmp_path: Path, server: dict[str, str], containers: docker.DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(tmp_path / "main", SMALL)
    chain = yaml.safe_load((project / "dvc.yaml").read_text())["stages"]
    (project / "dvc.yaml").write_text(
        yaml.safe_dump({"stages": {name: chain[name] for name in ("identity", "prepare")}})
    )
    call(project, "dvc", "remote", "add", "-q", "--default", "store", str(tmp_path / "store"))
    commit(project, "a short chain, and a store")
    call(tmp_path, "git", "clone", "-q", "--bare", "main", "origin.git")
    for name in ("user", "worker"):
        call(tmp_path, "git", "clone", "-q", "origin.git", name)
    monkeypatch.setenv("PREFECT_API_URL", server["PREFECT_API_URL"])
    with temporary_settings():
        make_pool(tmp_path)
    user, variables = tmp_path / "user", {**server, "DOCKER_HOST": os.environ["DOCKER_HOST"]}
    with started(tmp_path / "worker", "-m", "symposium", "worker", POOL, **variables):
        run = ("-m", "symposium", "run", "--on", POOL, "--name", "in a box")
        with started(user, *run, **variables) as asked:
            wait_for(lambda: asked.poll() is not None, lambda: words(user) + words(tmp_path / "worker"), 800)
    said = words(user) + words(tmp_path / "worker")
    assert asked.returncode == 0, said
    (container,) = containers.containers.list(all=True)
    assert container.wait()["StatusCode"] == 0, said
    call(user, "dvc", "exp", "pull", "-q", "origin", "in-a-box")
    call(user, "dvc", "exp", "apply", "-q", "in-a-box")
    assert "everything is up to date" in call(user, "symposium", "run")
    assert list((user / "data/problems").iterdir()) and not list((tmp_path / STATE / "workspaces").iterdir())
