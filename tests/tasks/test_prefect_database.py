"""A database with Prefect's tables, made once and copied: it is Prefect's own, and nobody's is replaced by it."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tasks.services import prefect_database
from tasks.services.prefect_database import FILE, URLS, empty_database, lay_database, make_empty_database


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    for name in URLS:
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "prefect"


def tables(file: Path) -> tuple[dict[str, str], list[tuple[str]]]:
    """Return the tables and indices, and the migrations that Prefect believes to be done."""
    with closing(sqlite3.connect(file)) as database:
        schema = dict(database.execute("SELECT name, sql FROM sqlite_master").fetchall())
        return schema, database.execute("SELECT version_num FROM alembic_version").fetchall()


def test_prefect_finds_nothing_to_migrate_in_a_copy(home: Path, tmp_path: Path) -> None:
    empty = tmp_path / "share" / "empty.db"
    make_empty_database(empty)
    assert [file.name for file in empty.parent.iterdir()] == ["empty.db"]
    assert lay_database(empty)
    laid = tables(home / FILE)
    assert {"flow_run", "task_run"} <= laid[0].keys()
    command = [sys.executable, "-m", "prefect", "server", "database", "upgrade", "--yes"]
    subprocess.run(command, env=dict(os.environ), capture_output=True, check=True)
    assert tables(home / FILE) == laid


def test_a_database_that_is_there_is_left_alone(home: Path, tmp_path: Path) -> None:
    home.mkdir()
    (home / FILE).write_bytes(b"somebody's")
    (tmp_path / "empty.db").write_bytes(b"empty")
    assert not lay_database(tmp_path / "empty.db")
    assert (home / FILE).read_bytes() == b"somebody's"


@pytest.mark.parametrize("variable", ["PREFECT_SERVER_DATABASE_CONNECTION_URL", "PREFECT_API_DATABASE_CONNECTION_URL"])
def test_without_one_to_copy_or_with_one_named_prefect_is_left_alone(
    variable: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not lay_database(tmp_path / "no.db")
    (tmp_path / "empty.db").write_bytes(b"empty")
    monkeypatch.setenv(variable, "postgresql+asyncpg://localhost/prefect")
    assert not lay_database(tmp_path / "empty.db")
    assert not home.exists()


def test_another_version_of_prefect_has_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now = empty_database()
    monkeypatch.setattr(prefect_database, "version", lambda name: "99.1")
    assert empty_database() != now
