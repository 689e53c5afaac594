"""Shared by the tests of flows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.services.servers import prefect_server
from tests.flows.toy_project import make_toy


@pytest.fixture(scope="session")
def toy_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_toy(tmp_path_factory.mktemp("template") / "toy")


@pytest.fixture
def toy(toy_template: Path, tmp_path: Path) -> Path:
    """A fresh toy project."""
    return Path(shutil.copytree(toy_template, tmp_path / "toy", symlinks=True))


@pytest.fixture(scope="session")
def server() -> Iterator[dict[str, str]]:
    """The variable of people who leave a Prefect server running; without one, each command starts one of its own."""
    with prefect_server() as url:
        yield {"PREFECT_API_URL": f"{url}/api"}
