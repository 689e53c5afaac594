"""Shared by the tests of tasks: one real Prefect server for all of them."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest


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
