"""A kill while MLflow's database is made costs nothing: the next start finds it, says so and makes it whole."""

import logging
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from pipeline_lib.storage import CorruptFileError
from pipeline_lib.tracking.connection import connect
from pipeline_lib.tracking.store import has_run


def damage(database: Path, *statements: str) -> None:
    with closing(sqlite3.connect(database)) as opened:
        for statement in statements:
            opened.execute(statement)
        opened.commit()


OLDER = ("update alembic_version set version_num = '451aebb31d03'", "drop table logged_models")


@pytest.mark.parametrize("part", [(), ("drop table alembic_version",), ("delete from alembic_version",), OLDER])
def test_a_part_of_a_database_is_made_anew_and_said(
    home: Path, caplog: pytest.LogCaptureFixture, part: tuple[str, ...]
) -> None:
    database = home / "mlflow.db"
    if part:
        damage(database, *part)
    else:
        database.write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        client = connect(f"sqlite:///{database}", home)
    assert "had a part of its tables only, left by an interrupt" in caplog.text
    run = client.create_run(client.create_experiment("lab"))
    client.log_metric(run.info.run_id, "x", 1.0)
    assert has_run(database)


def test_a_whole_database_and_one_with_runs_stay(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    database = home / "mlflow.db"
    inode = database.stat().st_ino
    client = connect(f"sqlite:///{database}", home)
    client.create_run("0")
    damage(database, "delete from alembic_version")
    with pytest.raises(Exception, match="out-of-date database schema"):
        connect(f"sqlite:///{database}?again", home)
    assert has_run(database) and database.stat().st_ino == inode and not caplog.text


def test_a_damaged_database_is_told_with_what_to_do(home: Path) -> None:
    database = home / "mlflow.db"
    for content in (b"no database" * 500, database.read_bytes()[:60000]):
        database.write_bytes(content)
        with pytest.raises(CorruptFileError, match=r"mlflow.db is damaged \(.*\): move it away"):
            connect(f"sqlite:///{database}", home)


def test_a_kill_while_it_is_made_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    with subprocess.Popen(
        [sys.executable, "-W", "error::RuntimeWarning", "-m", "pipeline_lib.tracking", uri, str(tmp_path)]
    ) as made:
        while not (tmp_path / "mlflow.new").exists() and made.poll() is None:
            time.sleep(0.01)
        made.kill()
    assert not (tmp_path / "mlflow.db").exists() and (tmp_path / "mlflow.new").exists()
    connect(uri, tmp_path).create_run("0")
    assert has_run(tmp_path / "mlflow.db") and not (tmp_path / "mlflow.new").exists()
