"""The project's SQLite database of MLflow, made whole or not at all.

MLflow makes its tables by dozens of migrations.  Killed in between, it leaves a part of them, with which no later
process can work.  So they are made in another file, which then gets the database's name.  A part of a database that
was left before is replaced: it holds no run.
"""

import logging
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from pipeline_lib.locks import locked
from pipeline_lib.storage import CorruptFileError
from pipeline_lib.tracking.addresses import LOCK

log = logging.getLogger("symposium.tracking")

SQLITE = "sqlite:///"


def make_database(uri: str, home: Path) -> None:
    """Make the tables of a SQLite database that has none, or only a part of them; the caller holds the `LOCK`.

    Any other tracking store is left alone.  The tables are made in a file of the folder ``home``.

    Raises:
        CorruptFileError: the file is no database any more.
    """
    if not uri.startswith(SQLITE):
        return
    path, new = Path(uri.removeprefix(SQLITE)), home / "mlflow.new"
    if has_run(path):
        return
    import mlflow.store.db.utils  # takes seconds, and who only asks `has_run` does not need it

    if _revision(path) == mlflow.store.db.utils._get_latest_schema_revision():
        return
    for left in (new, new.with_name(f"{new.name}-journal"), path.with_name(f"{path.name}-journal")):
        left.unlink(missing_ok=True)
    if path.exists():
        log.warning("%s had a part of its tables only, left by an interrupt, and no run; it was made anew", path)
    mlflow.MlflowClient(tracking_uri=f"{SQLITE}{new}", registry_uri=f"{SQLITE}{new}").search_experiments(max_results=1)
    new.replace(path)


def has_run(path: Path) -> bool:
    """Return whether a database has a run, and therefore all its tables; raises as `make_database`."""
    return bool(_first(path, "select 1 from runs"))


def _revision(path: Path) -> str:
    """Return the last migration that a database has seen, empty if there is none."""
    return str(_first(path, "select version_num from alembic_version") or "")


def _first(path: Path, query: str) -> object:
    if not path.exists():
        return None
    with closing(sqlite3.connect(path)) as database:
        try:
            return (database.execute(query).fetchone() or [None])[0]
        except sqlite3.OperationalError:  # there is no such table
            return None
        except sqlite3.DatabaseError as error:
            raise CorruptFileError(
                f"{path} is damaged ({error}): move it away; a new one is made, and what waits is sent to it"
            ) from error


if __name__ == "__main__":
    folder = Path(sys.argv[2])
    with locked(folder / LOCK):
        make_database(sys.argv[1], folder)
