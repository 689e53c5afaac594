"""One page for all tests that read it."""

from pathlib import Path

import pytest

from tests.report.build import experiment
from tests.report.html import Document, build


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def built(folder: Path) -> tuple[str, Document]:
    return build(experiment(), folder)
