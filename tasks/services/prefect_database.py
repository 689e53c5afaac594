"""Prefect's database, whose tables are created once per Python environment.

Prefect creates the tables of a new database by running all its migrations, which takes longer than most stages.  The
installation does that once (``python -m tasks.services.prefect_database``) and keeps the empty database in the
environment; a new project starts with a copy of it.  Without this copy, or if a variable of `URLS` names another
database, Prefect creates the tables itself.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

from pipeline_lib.locks import locked
from tasks.services.process_environment import child_environment, places, prepare

URLS = ("PREFECT_SERVER_DATABASE_CONNECTION_URL", "PREFECT_API_DATABASE_CONNECTION_URL")
"""Where Prefect reads the address of its database; the second is its older name."""
FILE = "prefect.db"


def lay_database(empty: Path | None = None) -> bool:
    """Give the project a database with tables, a copy of an empty one, if it has none; return whether that was done."""
    folder, empty = Path(os.environ.get("PREFECT_HOME", places().prefect)), empty or empty_database()
    if any(name in os.environ for name in URLS) or not empty.exists() or (folder / FILE).exists():
        return False
    with locked(folder / "database.lock"):
        if (folder / FILE).exists():
            return False
        shutil.copyfile(empty, folder / "prefect.new")
        (folder / "prefect.new").replace(folder / FILE)
    return True


def empty_database() -> Path:
    """Return where the environment's empty database is, or would be: each version of Prefect has its own."""
    return Path(sys.prefix) / "share" / "symposium" / f"prefect-{version('prefect')}.db"


def make_empty_database(target: Path) -> None:
    """Let Prefect make its tables, and keep them; raises RuntimeError, with its own words, if it could not."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        inherited = child_environment(PREFECT_HOME=folder)
        environment = {name: value for name, value in inherited.items() if name not in URLS}
        command = [sys.executable, "-m", "prefect", "server", "database", "upgrade", "--yes"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        whole = Path(folder) / "whole.db"
        with closing(sqlite3.connect(Path(folder) / FILE)) as database:
            database.execute("VACUUM INTO ?", (str(whole),))  # one file, whatever the journal still held
        whole.replace(target)


if __name__ == "__main__":
    prepare()
    make_empty_database(empty_database())
