"""Start the four servers in their order, keep them running, and end them in the other order."""

import hashlib
import hmac
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from subprocess import Popen
from typing import NamedTuple

from pipeline_lib.locks import locked
from tasks.cluster import database, store
from tasks.cluster.settings import Cluster, ClusterError, Passwords, Ports
from tasks.services.process_environment import answers, child_environment
from tasks.services.processes import ended, start, stop
from tasks.services.servers import ServerError, free_port, refused, require, status_of

START_S = 300.0
_SETTLES_S = 20.0  # so long a store that answers may refuse files, before it knows its volumes
STOP_S = 20.0  # PostgreSQL writes what it has in memory, SeaweedFS takes its time
_EVERYWHERE = "0.0.0.0"
#: What `answering` says of a server.
ANSWERS, REFUSES, SILENT = "answers", "refuses the password", "does not answer"


class _Part(NamedTuple):
    name: str
    command: list[str]
    environment: Mapping[str, str]
    ready: Callable[[], bool]
    by: int = signal.SIGTERM
    """Signal by which it ends if this process is killed."""


@contextmanager
def storage(cluster: Cluster, passwords: Passwords, say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Run the database and the store for a ``with`` block; yields what starts again those that have ended.

    Raises:
        ClusterError: one does not start, or is in use, or the passwords are not those that it was made with.
    """
    with _own(cluster.folder):
        _require_free(cluster.ports, "postgres", "store")
        with _storage(cluster, passwords, say) as look:
            yield look


@contextmanager
def everything(cluster: Cluster, passwords: Passwords, say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Run all servers for a ``with`` block; yields what starts again those that have ended.

    Raises:
        ClusterError: as `storage`.
    """
    with _own(cluster.folder):
        _require_free(cluster.ports, *Ports._fields)
        with (
            _storage(cluster, passwords, say) as look_at_storage,
            _running(cluster, [_prefect(cluster, passwords), _mlflow(cluster, passwords)], say) as look,
        ):
            _require_passwords(cluster)

            def all_of_them() -> None:
                look_at_storage()
                look()

            yield all_of_them


def answering(ports: Ports, passwords: Passwords) -> dict[str, str]:
    """Return of each server on this machine, asked with these passwords: `ANSWERS`, `REFUSES` or `SILENT`."""
    prefect, mlflow = f"http://127.0.0.1:{ports.prefect}", f"http://127.0.0.1:{ports.mlflow}"
    user = f"{passwords.mlflow_tracking_username}:{passwords.mlflow_tracking_password}"
    try:
        postgres = ANSWERS if _postgres_answers(ports, passwords) else SILENT
    except ClusterError:
        postgres = REFUSES
    stored = ANSWERS if store.make_buckets(ports.store, passwords) else SILENT
    return {
        "postgres": postgres,
        "store": REFUSES if stored == SILENT and store.refuses(ports.store, passwords) else stored,
        "prefect": _said(status_of(f"{prefect}/api/admin/version", passwords.prefect_api_auth_string)),
        "mlflow": _said(status_of(f"{mlflow}/api/2.0/mlflow/experiments/get?experiment_id=0", user)),
    }


def _said(status: int) -> str:
    return {200: ANSWERS, 401: REFUSES, 403: REFUSES}.get(status, SILENT)


@contextmanager
def _storage(cluster: Cluster, passwords: Passwords, say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    free = shutil.disk_usage(cluster.folder).free
    if free < store.LEAST and not (cluster.folder / "store").exists():
        raise ClusterError(
            f"{cluster.folder} is on a disk with {free / 2**30:.1f} GiB free; a store needs {store.LEAST / 2**30:.0f}"
        )
    database.make(cluster.folder / "postgres", passwords.pgpassword)
    with _running(cluster, [_postgres(cluster, passwords), _store(cluster, passwords)], say) as look:
        database.make_databases(cluster.ports.postgres, passwords.pgpassword)
        end = time.monotonic() + _SETTLES_S
        while not store.takes_files(cluster.ports.store, passwords):
            if time.monotonic() > end:
                say("warning: the store takes no files; its disk is probably full")
                break
            time.sleep(0.5)
        yield look


@contextmanager
def _own(folder: Path) -> Iterator[None]:
    """Let no other process run servers of this folder meanwhile; what was refused leaves no folder behind."""
    is_new, lock = not folder.exists(), folder / "cluster.lock"
    try:
        with locked(lock, wait=False):
            try:
                yield
            finally:
                if [*folder.iterdir()] == [lock]:
                    lock.unlink()
                    if is_new:
                        folder.rmdir()
    except BlockingIOError:
        raise ClusterError(f"the servers of {folder} run already") from None


@contextmanager
def _running(cluster: Cluster, parts: list[_Part], say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    processes: dict[str, Popen[bytes]] = {}
    logs = cluster.folder / "logs"
    logs.mkdir(exist_ok=True)

    def begin(part: _Part) -> None:
        with (logs / f"{part.name}.log").open("ab") as output:
            processes[part.name] = start(
                part.command, child_environment(**part.environment), Path("/"), output, part.by
            )

    def look() -> None:
        for part in parts:
            if (status := processes[part.name].poll()) is not None:
                say(f"{part.name} has ended ({ended(status)}); it is started again")
                stop(processes[part.name], 0.0)  # its workers may have outlived it, and hold the port
                begin(part)

    try:
        for part in parts:
            say(f"starting {part.name}")
            begin(part)
        for part in parts:
            end = time.monotonic() + START_S
            while not part.ready():
                if (status := processes[part.name].poll()) is not None:
                    raise ClusterError(f"{part.name} has ended ({ended(status)}); see {logs / f'{part.name}.log'}")
                if time.monotonic() > end:
                    raise ClusterError(f"{part.name} does not answer; see {logs / f'{part.name}.log'}")
                time.sleep(0.2)
        yield look
    finally:
        for part in reversed(parts):
            if part.name in processes:
                stop(processes[part.name], STOP_S)


def _postgres_answers(ports: Ports, passwords: Passwords) -> bool:
    try:
        with database.connected(ports.postgres, passwords.pgpassword):
            return True
    except ClusterError as error:
        if "password" in str(error):
            raise
        return False


def _postgres(cluster: Cluster, passwords: Passwords) -> _Part:
    command = database.command(cluster.folder / "postgres", cluster.ports.postgres)
    return _Part("postgres", command, {}, lambda: _postgres_answers(cluster.ports, passwords))


def _store(cluster: Cluster, passwords: Passwords) -> _Part:
    port, folder = cluster.ports.store, cluster.folder / "store"
    command = store.command(folder, cluster.host, port, passwords)
    ready = partial(store.make_buckets, port, passwords)
    # It takes minutes to end by SIGTERM, or never does, with its ports; what it has acknowledged is written.
    return _Part("store", command, store.variables(passwords), ready, signal.SIGKILL)


def _prefect(cluster: Cluster, passwords: Passwords) -> _Part:
    port = cluster.ports.prefect
    environment = {
        "PREFECT_HOME": str(cluster.folder / "prefect"),
        "PREFECT_API_URL": cluster.addresses["PREFECT_API_URL"],
        "PREFECT_SERVER_UI_API_URL": cluster.addresses["PREFECT_API_URL"],
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        # By default it writes its pages beside its code, where the user of a container may not.
        "PREFECT_SERVER_UI_STATIC_DIRECTORY": str(cluster.folder / "prefect/pages"),
        "PREFECT_SERVER_API_AUTH_STRING": passwords.prefect_api_auth_string,
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": database.address(
            "asyncpg", cluster.ports.postgres, passwords.pgpassword, database.PREFECT
        ),
    }
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", cluster.host, "--port", str(port)]
    return _Part("prefect", command, environment, lambda: answers(f"http://127.0.0.1:{port}", "prefect"))


def _mlflow(cluster: Cluster, passwords: Passwords) -> _Part:
    port, folder = cluster.ports.mlflow, cluster.folder / "mlflow"
    folder.mkdir(exist_ok=True)

    def at(name: str) -> str:
        return database.address("psycopg", cluster.ports.postgres, passwords.pgpassword, name)

    users = folder / "users.ini"  # MLflow reads the address of its users from a file only
    users.touch(mode=0o600)
    users.write_text(
        "[mlflow]\n"
        f"database_uri = {at(database.MLFLOW_USERS).replace('%', '%%')}\n"
        f"admin_username = {passwords.mlflow_tracking_username}\n"
        "default_permission = MANAGE\n"
        "auth_cache_ttl_seconds = 60\n"  # else every request costs tens of milliseconds
    )
    key = hmac.new(passwords.mlflow_tracking_password.encode(), b"pages", hashlib.sha256).hexdigest()
    environment = {
        "MLFLOW_AUTH_CONFIG_PATH": str(users),
        "MLFLOW_AUTH_ADMIN_PASSWORD": passwords.mlflow_tracking_password,
        "MLFLOW_BACKEND_STORE_URI": at(database.MLFLOW),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": key,
        "MLFLOW_S3_ENDPOINT_URL": f"http://127.0.0.1:{cluster.ports.store}",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "AWS_ACCESS_KEY_ID": passwords.aws_access_key_id,
        "AWS_SECRET_ACCESS_KEY": passwords.aws_secret_access_key,
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    command = [sys.executable, "-m", "mlflow", "server", "--app-name", "basic-auth", "--workers", "2"]
    command += ["--host", cluster.host, "--port", str(port), "--artifacts-destination", f"s3://{store.ARTIFACTS}"]
    if cluster.host != "127.0.0.1":
        names = {"127.0.0.1", "localhost", cluster.host, cluster.name, socket.gethostname()} - {_EVERYWHERE}
        command += ["--allowed-hosts", ",".join(f"{name}:{port}" for name in sorted(names))]
    return _Part("mlflow", command, environment, lambda: answers(f"http://127.0.0.1:{port}", "mlflow"))


def _require_free(ports: Ports, *names: str) -> None:
    for name in names:
        first = int(getattr(ports, name))
        for used in range(first, first + (store.PORTS if name == "store" else 1)):
            if free_port(used) != used:
                raise ClusterError(f"port {used} is in use; --{name}-port names another one")


def _require_passwords(cluster: Cluster) -> None:
    """Raise ClusterError if a server that was made earlier has other passwords than the environment."""
    try:
        require(f"http://127.0.0.1:{cluster.ports.prefect}/api")
    except ServerError as error:
        raise ClusterError(str(error)) from None
    if why := refused(f"http://127.0.0.1:{cluster.ports.mlflow}"):
        raise ClusterError(why)
