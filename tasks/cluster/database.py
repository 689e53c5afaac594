"""PostgreSQL for Prefect and MLflow: a database system of its own in the folder of the cluster, on 127.0.0.1 only."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from tasks.cluster.settings import ClusterError

HOST = "127.0.0.1"
USER = "symposium"
PREFECT, MLFLOW, MLFLOW_USERS = "prefect", "mlflow", "mlflow_users"
DATABASES = (PREFECT, MLFLOW, MLFLOW_USERS)
_DEBIAN = Path("/usr/lib/postgresql")
LEAST_VERSION = 15


def address(driver: str, port: int, password: str, database: str) -> str:
    """Return the address of a database for SQLAlchemy; it holds the password."""
    return f"postgresql+{driver}://{USER}:{quote(password, safe='')}@{HOST}:{port}/{database}"


def program(name: str) -> str:
    """Return the path of a program of PostgreSQL, the newest that Debian has, or the one on the path.

    Raises:
        ClusterError: there is none, or it is too old.
    """
    versions = sorted((int(path.name), path) for path in _DEBIAN.glob("*") if (path / "bin/postgres").exists())
    if versions:
        version, folder = versions[-1]
        found: str | None = str(folder / "bin" / name)
    elif found := shutil.which(name):
        said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
        version = int(said.split()[-1].partition(".")[0]) if said.split()[-1][0].isdigit() else LEAST_VERSION
    if found is None:
        raise ClusterError("PostgreSQL is not installed; apt-get install postgresql (15 or newer)")
    if version < LEAST_VERSION:
        raise ClusterError(f"{found} is PostgreSQL {version}; {LEAST_VERSION} or newer is needed")
    return found


def as_user() -> list[str]:
    """Return what starts a program as an ordinary user, which PostgreSQL insists on, and ends it with its parent."""
    if os.geteuid() != 0:
        return []
    user = _owner()
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--pdeathsig=INT"]


def make(folder: Path, password: str) -> None:
    """Make the database system in ``folder``, if it is not there yet, with this password.

    Raises:
        ClusterError: PostgreSQL is missing, or cannot write there.
    """
    if (folder / "PG_VERSION").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)  # what an interrupted start has left
    folder.mkdir(parents=True, mode=0o700)
    with tempfile.TemporaryDirectory(prefix="symposium-") as place:
        file = Path(place) / "password"
        file.write_text(password + "\n")
        file.chmod(0o600)
        if os.geteuid() == 0:
            for path in (Path(place), file, folder):
                os.chown(path, _owner().pw_uid, _owner().pw_gid)
        command = [program("initdb"), "-D", str(folder), "-U", USER, "--auth=scram-sha-256", f"--pwfile={file}"]
        command += ["--encoding=UTF8", "--locale=C.UTF-8", "--data-checksums"]
        done = subprocess.run(
            [*as_user(), *command],
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "TZ": "UTC"},
        )
    if done.returncode:
        shutil.rmtree(folder, ignore_errors=True)
        why = done.stderr.strip().splitlines()[-1:] or ["initdb failed"]
        who = f"; {_owner().pw_name}, as whom it runs, must reach that folder" if os.geteuid() == 0 else ""
        raise ClusterError(f"no database could be made in {folder}: {why[0]}{who}")


def command(folder: Path, port: int) -> list[str]:
    """Return the command of the server."""
    settings = {"listen_addresses": HOST, "port": str(port), "unix_socket_directories": "", "max_connections": "200"}
    given = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    return [*as_user(), program("postgres"), "-D", str(folder), *given]


@contextmanager
def connected(port: int, password: str, database: str = "postgres") -> Iterator[psycopg.Connection]:
    """Yield a connection that commits every statement, for a ``with`` block.

    Raises:
        ClusterError: the password is another one, or the server does not answer.
    """
    try:
        connection = psycopg.connect(
            host=HOST, port=port, user=USER, password=password, dbname=database, autocommit=True, connect_timeout=5
        )
    except psycopg.OperationalError as error:
        if "password authentication failed" in str(error):
            raise ClusterError(
                "the database was made with another password than PGPASSWORD; set the one that it was made with"
            ) from None
        raise ClusterError(f"the database does not answer: {str(error).strip().splitlines()[-1]}") from None
    with connection:
        yield connection


def make_databases(port: int, password: str) -> None:
    """Make the databases that are not there yet."""
    with connected(port, password) as connection:
        there = {name for (name,) in connection.execute("SELECT datname FROM pg_database")}
        for name in DATABASES:
            if name not in there:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))


def tool_environment(port: int, password: str) -> Mapping[str, str]:
    """Return the environment in which PostgreSQL's own tools find the server."""
    return {**os.environ, "PGHOST": HOST, "PGPORT": str(port), "PGUSER": USER, "PGPASSWORD": password}


def _owner() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ClusterError("PostgreSQL does not run as root; start the servers as another user")
