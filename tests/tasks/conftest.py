"""Shared by the tests of tasks: one real Prefect server for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def prefect() -> Iterator[str]:
    """The address of a running Prefect server, which this process and its children use; MLflow's database is made."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    from pipeline_lib.tracking.addresses import tracking_uri
    from pipeline_lib.tracking.connection import connect
    from tasks.services.process_environment import places
    from tasks.services.servers import prefect_server

    connect(tracking_uri(places().tracking), places().tracking)
    with prefect_server() as url, temporary_settings({PREFECT_API_URL: f"{url}/api"}):
        yield url
