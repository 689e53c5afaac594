"""Shared by the tests of tasks: one real Prefect server for all of them."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.settings import Params, load_params
from tasks.experiment.arms import BASE, PROBLEMS
from tests.needs import ROOT


@pytest.fixture
def tracking(tmp_path: Path, empty_database: Path) -> Path:
    """The home of MLflow, with a database without runs."""
    (folder := tmp_path / "mlflow").mkdir()
    shutil.copy(empty_database, folder / "mlflow.db")
    return folder


PHILOSOPHERS = """
environment: philosophers
problems: {kind: scenarios, sizes: {train: 4, validation: 2, test: 2}}
policy: {warm_start: {steps: 1, batch: 2}, adapter: ADAPTER}
"""


@pytest.fixture(scope="session")
def philosophers_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Problems and a base, which is the same with every adapter."""
    folder = tmp_path_factory.mktemp("philosophers")
    (folder / "params.yaml").write_text(PHILOSOPHERS.replace("ADAPTER", "{kind: none}"))
    params = load_params(folder / "params.yaml", ROOT / "conf")
    prepare(params.environment.kind, params.problems, folder / PROBLEMS)
    build_base(params.policy, folder / PROBLEMS, folder / BASE)
    return folder


@pytest.fixture
def philosophers(
    philosophers_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], Params]:
    """Enter a project that has problems and a base; the function returns its settings, with an adapter and more."""
    shutil.copytree(philosophers_template, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)

    def settings(adapter: str, more: str) -> Params:
        Path("params.yaml").write_text(PHILOSOPHERS.replace("ADAPTER", adapter) + more)
        return load_params(Path("params.yaml"), ROOT / "conf")

    return settings


@pytest.fixture(scope="session")
def prefect(empty_database: Path) -> Iterator[str]:
    """The address of a running Prefect server, which this process and its children use; MLflow's database is made."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    from tasks.services.process_environment import places
    from tasks.services.servers import prefect_server

    database = places().tracking / "mlflow.db"
    if not database.exists():
        database.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(empty_database, database)
    with prefect_server() as url, temporary_settings({PREFECT_API_URL: f"{url}/api"}):
        yield url
