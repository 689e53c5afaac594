"""Shared by the tests of flows."""

import shutil
from pathlib import Path

import pytest

from tests.flows.toy_project import make_toy


@pytest.fixture(scope="session")
def toy_template(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Path:
    return make_toy(tmp_path_factory.mktemp("template") / "toy", empty_database)


@pytest.fixture
def toy(toy_template: Path, tmp_path: Path) -> Path:
    """A fresh toy project."""
    return Path(shutil.copytree(toy_template, tmp_path / "toy", symlinks=True))
