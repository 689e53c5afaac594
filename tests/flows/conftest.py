"""Shared by the tests of flows."""

import shutil
from pathlib import Path

import pytest

from tasks.services.stage_proxy import ADDRESS
from tests.flows.toy_project import make_toy


@pytest.fixture(scope="session")
def toy_template(tmp_path_factory: pytest.TempPathFactory, empty_project: Path, empty_database: Path) -> Path:
    return make_toy(tmp_path_factory.mktemp("template") / "toy", empty_project, empty_database)


@pytest.fixture
def toy(toy_template: Path, tmp_path: Path) -> Path:
    """A fresh toy project."""
    return Path(shutil.copytree(toy_template, tmp_path / "toy", symlinks=True))


@pytest.fixture(scope="session")
def lent(ready: dict[str, str]) -> dict[str, str]:
    """The variables with which programs and stages of a toy project use the server, and are forks."""
    return ready | {"TOY_LIBRARIES": ready[ADDRESS]}
