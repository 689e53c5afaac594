"""Start, announce and stop the servers of the project: Prefect, MLflow, and the page on which teams play.

All listen on 127.0.0.1 only.  If a port is in use, the next free one is used and printed.  A server ends when the
process that started it ends, also if that is killed, and is killed if it does not stop in time.  The output of the
servers goes to files in ``.symposium/logs``.
"""

import base64
import contextlib
import json
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from pipeline_lib.locks import locked
from pipeline_lib.storage import write_json
from pipeline_lib.tracking.processes import own_process
from pipeline_lib.tracking.store import LOCK, SQLITE, has_run, tracking_uri
from tasks.services.end_with_parent import STOP_S
from tasks.services.prefect_database import lay_database
from tasks.services.process_environment import answers, child_environment, places
from tasks.services.processes import ended, family, start, stop

log = logging.getLogger("symposium.stage")

HOST = "127.0.0.1"
PREFECT_PORT, MLFLOW_PORT, PAGE_PORT = 4200, 5000, 8001
#: Environment variable with the key that the page asks for; who has none gets one that is drawn.
PAGE_KEY = "SYMPOSIUM_PAGE_KEY"
UI_URL = "PREFECT_UI_URL"
_PASSWORD = "PREFECT_API_AUTH_STRING"
START_S = 300.0
_LOOK_S = 5.0
#: How addresses begin that MLflow knows, beside those of servers; not folders, with which it works no longer.
_STORES = ("sqlite:", "postgresql", "mysql", "mssql", "databricks")
_FULL_BYTES = 4 << 20  # less than Prefect's database needs

# What looks after schedules, workers and automations several times a minute; a server of one chain has none.
_SERVICES = (
    "CANCELLATION_CLEANUP",
    "CLEANUP_RECONCILER",
    "DB_VACUUM",
    "FOREMAN",
    "LATE_RUNS",
    "PAUSE_EXPIRATIONS",
    "REPOSSESSOR",
    "SCHEDULER",
    "TRIGGERS",
)


class ServerError(RuntimeError):
    """A server could not be started; the message says why, and where its own words are."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that this process has started: address, leader of its process group, and file of its output."""

    name: str
    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def wait_until_healthy(self, timeout_s: float = START_S) -> None:
        """Return when the server answers; raises ServerError if it ended, or did not answer in time."""
        end = time.monotonic() + timeout_s
        # Another program may have taken the port a moment before; our process must be the one that listens.
        while not (self._listens() and answers(self.url, self.name)):
            if self.process.poll() is not None:
                full = shutil.disk_usage(self.log.parent).free < _FULL_BYTES
                why = "the disk is full" if full else f"see {self.log}"
                raise ServerError(f"the {self.name} server has ended ({ended(self.process.returncode)}); {why}")
            if time.monotonic() > end:
                self.stop()
                raise ServerError(f"the {self.name} server does not answer after {timeout_s:.0f} s; see {self.log}")
            time.sleep(0.2)

    def _listens(self) -> bool:
        port = int(self.url.rpartition(":")[2])
        for member in family(self.process.pid):
            with contextlib.suppress(psutil.Error):
                for connection in member.net_connections("tcp"):
                    if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                        return True
        return False

    def stop(self, timeout_s: float = STOP_S) -> None:
        """Ask the server's processes to end, and kill those that have not after ``timeout_s`` seconds."""
        stop(self.process, timeout_s)


def start_prefect(port: int = PREFECT_PORT, ui: bool = True) -> Server:
    """Start a Prefect server on the first free port from ``port`` on; it may not answer yet.

    With ``ui`` it is for people, with the page and the services behind it; else it records the runs of one chain.
    """
    lay_database()
    port = free_port(port)
    url = f"http://{HOST}:{port}"
    arguments = ["-m", "prefect", "server", "start", "--host", HOST, "--port", str(port), "--ui" if ui else "--no-ui"]
    # The page asks the address it was built for; on another port than the usual one it must be told.
    changes = {"PREFECT_SERVER_UI_API_URL": f"{url}/api", "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false"}
    if not ui:
        changes |= {f"PREFECT_SERVER_SERVICES_{name}_ENABLED": "false" for name in _SERVICES}
    return _start("prefect", url, arguments, changes, without=("PREFECT_API_URL",))


def start_mlflow(port: int = MLFLOW_PORT) -> Server:
    """Start an MLflow server over the project's database on the first free port, and wait until it answers."""
    check_tracking()
    port = free_port(port)
    home = places().tracking
    home.mkdir(parents=True, exist_ok=True)
    uri = tracking_uri(home)
    arguments = ["-m", "mlflow", "server", "--host", HOST, "--port", str(port), "--workers", "1"]
    arguments += ["--backend-store-uri", uri, "--artifacts-destination", (home / "artifacts").as_uri()]
    # One worker is much faster on SQLite than several, and jobs are for things that are not used here.
    changes = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    if uri.startswith(SQLITE) and not has_run(Path(uri.removeprefix(SQLITE))):
        subprocess.run([sys.executable, "-m", "pipeline_lib.tracking", uri, str(home)], check=True)
    with locked(home / LOCK):  # it opens the database, and no run must make one at the same time
        server = _start("mlflow", f"http://{HOST}:{port}", arguments, changes, without=("MLFLOW_TRACKING_URI",))
        server.wait_until_healthy()
    return server


def start_page(key: str, port: int = PAGE_PORT) -> Server:
    """Start the page on which teams play, on the first free port from ``port`` on; it may not answer yet."""
    port = free_port(port)
    url = f"http://{HOST}:{port}"
    return _start("page", url, ["-m", "flows.page", "--port", str(port)], {PAGE_KEY: key}, folder=Path.cwd())


@contextlib.contextmanager
def prefect_server() -> Iterator[str]:
    """Yield the address of a Prefect server for the length of a ``with`` block; children find it as well.

    It is the one in ``PREFECT_API_URL``, where `tasks.services.process_environment.prepare` puts the project's server
    when one runs, else a server of our own, which ends with the block.

    Raises:
        ServerError: the server in ``PREFECT_API_URL`` does not answer, or ours does not start.
    """
    with starting_prefect_server() as wait:
        yield wait()


@contextlib.contextmanager
def starting_prefect_server() -> Iterator[Callable[[], str]]:
    """Start what `prefect_server` yields, and leave the waiting to the caller, who can do something else meanwhile.

    Yields:
        what waits until the server answers, and returns its address.

    Raises:
        ServerError: the server in ``PREFECT_API_URL`` does not answer, or the address of MLflow is none; from the
            function: ours does not start.
    """
    check_tracking()
    if given := os.environ.get("PREFECT_API_URL"):
        require(given)
        yield lambda: given.removesuffix("/api")
        return
    server = start_prefect(any_port(), ui=False)
    # An empty address of the pages: a link to one would be dead, for this server has none, and ends with the block.
    os.environ |= {"PREFECT_API_URL": f"{server.url}/api", UI_URL: ""}

    def wait() -> str:
        server.wait_until_healthy()
        return server.url

    try:
        yield wait
    finally:
        _send_what_is_left()
        for name in ("PREFECT_API_URL", UI_URL):
            os.environ.pop(name, None)
        server.stop()


@contextlib.contextmanager
def prefect_at(url: str) -> Iterator[None]:
    """Let Prefect in this process use the server that `prefect_server` has yielded, for a ``with`` block."""
    # Prefect loads while its server starts.
    from prefect.settings import PREFECT_API_URL, PREFECT_UI_URL, temporary_settings

    pages = {PREFECT_UI_URL: os.environ[UI_URL]} if UI_URL in os.environ else {}
    with temporary_settings({PREFECT_API_URL: f"{url}/api", **pages}):
        yield


def _send_what_is_left() -> None:
    """Let Prefect send logs and events now; at the end of the process it would try a server that is gone, for long.

    Only what is loaded has any; to load it now would fail, where a signal has interrupted the same import.
    """
    for module, worker in (("prefect.logging.handlers", "APILogWorker"), ("prefect.events.worker", "EventsWorker")):
        if module in sys.modules:
            getattr(sys.modules[module], worker).drain_all(timeout=5.0)


def check_tracking() -> None:
    """Raise ServerError if what ``MLFLOW_TRACKING_URI`` names cannot hold MLflow's runs; nothing is asked."""
    given = os.environ.get("MLFLOW_TRACKING_URI", "")
    if given and not (_is_http(given) or given.startswith(_STORES)):
        raise ServerError(
            f"MLFLOW_TRACKING_URI={without_password(given)} is no address of MLflow; it is that of a server, as "
            "http://server:5000 (name and password are in MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD), or "
            "of a database, as sqlite:////folder/mlflow.db"
        )


def _check_api(url: str) -> None:
    """Raise ServerError if no Prefect server can be at this address."""
    if not (_is_http(url) and url.endswith("/api")):
        raise ServerError(
            f"PREFECT_API_URL={without_password(url)} is no address of a Prefect server; it begins with http:// or "
            f"https:// and ends with /api, as http://server:4200/api (name and password are in {_PASSWORD})"
        )


def _is_http(url: str) -> bool:
    """Return whether this is the address of a server, without a password, which the pages of the servers would show."""
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0 and "@" not in url
    except ValueError:  # the port is no number
        return False


def without_password(url: str) -> str:
    """Return an address as it may be shown: name and password are left out."""
    return re.sub(r"[^/]*@", "***@", url)


def require(api_url: str) -> None:
    """Raise ServerError if no Prefect server answers at ``api_url``, or if it wants another password."""
    _check_api(api_url)
    if not answers(api_url.removesuffix("/api"), "prefect", timeout_s=10.0):
        raise ServerError(
            f"the Prefect server at {api_url} does not answer; start it (`make ui`), or unset PREFECT_API_URL to work "
            "without one"
        )
    password = os.environ.get(_PASSWORD, "")
    code = status_of(f"{api_url}/admin/version", password)  # whether it is healthy it says to everybody
    if code in (401, 403):
        said = "refuses the password; correct" if password else "wants a password; set"
        raise ServerError(f"the Prefect server at {api_url} {said} {_PASSWORD}=user:password")
    if code != 200:
        raise ServerError(f"the Prefect server at {api_url} does not answer ({code or 'no connection'})")


def wait_until_back(api_url: str) -> None:
    """Wait for a Prefect server that is away, and say so; not for this run's own, which nobody starts again."""
    if os.environ.get(UI_URL) == "":
        return
    is_told = False
    while not answers(api_url.removesuffix("/api"), "prefect", timeout_s=10.0):
        if not is_told:
            log.warning("the Prefect server at %s does not answer; waiting for it", api_url)
        is_told = True
        time.sleep(_LOOK_S)


def refused(tracking: str) -> str:
    """Return why the MLflow server at this address cannot be used with the given name and password; "" if it can."""
    user, password = (os.environ.get(f"MLFLOW_TRACKING_{name}", "") for name in ("USERNAME", "PASSWORD"))
    code = status_of(f"{tracking}/api/2.0/mlflow/experiments/get?experiment_id=0", f"{user}:{password}" if user else "")
    if code in (401, 403):
        said = "refuses name or password; correct" if user else "wants a password; set"
        return f"the MLflow server at {tracking} {said} MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
    return "" if code == 200 else f"the MLflow server at {tracking} does not answer ({code or 'no connection'})"


def status_of(url: str, password: str) -> int:
    """Return the status of an answer, 0 without one; ``password`` is ``user:password``, or empty."""
    request = urllib.request.Request(url)
    if password:
        request.add_header("Authorization", f"Basic {base64.b64encode(password.encode()).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=10.0) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except (OSError, HTTPException):  # another program may listen there
        return 0


def free_port(wanted: int) -> int:
    """Return ``wanted``, or the first free port above it; ServerError if the next fifty are all taken."""
    for port in range(wanted, wanted + 50):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind((HOST, port))
                return port
    raise ServerError(f"ports {wanted} to {wanted + 49} on {HOST} are all in use; stop one of the programs there")


def any_port() -> int:
    """Return a port that no program is likely to take in the next seconds."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def announced(urls: Mapping[str, str]) -> Iterator[None]:
    """Let other processes of the project find these servers for the length of a ``with`` block."""
    file = places().servers
    content = {name: {"url": url, "process": own_process()} for name, url in urls.items()}
    write_json(file, content)
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            if json.loads(file.read_text(encoding="utf-8")) == content:  # not a later one's
                file.unlink()


def _start(
    name: str,
    url: str,
    arguments: Sequence[str],
    changes: Mapping[str, str],
    without: Sequence[str] = (),
    folder: Path | None = None,
) -> Server:
    """Start a server in ``folder``, by default that of the project's local state."""
    log = places().home / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {k: v for k, v in child_environment(**changes).items() if k not in without}
    with log.open("wb") as output:
        process = start([sys.executable, *arguments], environment, folder or places().home, output)
    return Server(name, url, process, log)
