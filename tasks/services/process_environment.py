"""The process environment of every entry point: the location of the project's databases, and what is switched off.

Promises: after `prepare`, Prefect, DVC and MLflow send no telemetry, and everything that they store is in one folder of
the project, ``.symposium/``, under absolute paths, also if the process runs in the temporary workspace of a DVC
experiment (``.dvc/tmp/exps/...``), which is deleted later.  Variables that are already set take precedence.  Does not
promise: any effect on a Prefect, MLflow or torch that was imported before; call `prepare` first (importing ``flows``
does).  It starts no server; it uses the project's server if one is running.
"""

import getpass
import json
import os
import sys
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from pipeline_lib.processor import WAITING
from pipeline_lib.tracking.processes import is_gone

HOME = "SYMPOSIUM_HOME"
"""Environment variable: absolute path of the ``.symposium`` folder; inherited by every child process."""

_TELEMETRY_OFF = {
    "DO_NOT_TRACK": "true",  # Prefect accepts several words, MLflow this one only
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DVC_NO_ANALYTICS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
_PREFECT = {
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",
    # The first start migrates a database; on a busy machine the default of 20 s is not enough.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "PREFECT_CLI_PROMPT": "false",
    # A process that was killed must show as crashed within a minute; 30 s is the least that Prefect accepts.
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    # What a server says whose database is away for some seconds.
    "PREFECT_CLIENT_RETRY_EXTRA_CODES": "500",
}
_THIS_MACHINE = ("127.0.0.1", "localhost")
_SPINS = "GOMP_SPINCOUNT"
_THREADS = {
    **WAITING,
    # Batches are small: one thread per process is fastest, and stages run side by side.
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


@dataclass(frozen=True, slots=True)
class Places:
    """Where the project's local state lies; all paths are absolute."""

    home: Path

    @property
    def prefect(self) -> Path:
        """Prefect's home: its database and settings."""
        return self.home / "prefect"

    @property
    def cache(self) -> Path:
        """Values of cached tasks, a file each."""
        return self.home / "cache"

    @property
    def tracking(self) -> Path:
        """MLflow's database and artifacts, and metrics that wait for a server."""
        return self.home / "mlflow"

    @property
    def scratch(self) -> Path:
        """Resumable state of long loops, and locks."""
        return self.home / "scratch"

    @property
    def servers(self) -> Path:
        """The file in which running servers are announced."""
        return self.home / "servers.json"


def places() -> Places:
    """Return the project's folders: those of `HOME` if it is set, else ``.symposium`` in the project's root."""
    if given := os.environ.get(HOME):
        return Places(Path(given).absolute())
    return Places(project_root() / ".symposium")


def project_root(start: Path | None = None) -> Path:
    """Return the root of the project that ``start`` (default: the working directory) belongs to.

    The root is the nearest folder with ``params.yaml``, ``dvc.yaml`` or ``.git``.  Inside a temporary workspace of a
    DVC experiment it is the root of the project that the experiment was started from.
    """
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if folder.parent.name == "exps" and folder.parts[-4:-2] == (".dvc", "tmp"):
            return folder.parents[3]
    for folder in (here, *here.parents):
        if any((folder / name).exists() for name in ("params.yaml", "dvc.yaml", ".git")):
            return folder
    return here


def prepare() -> Places:
    """Complete ``os.environ`` for this process and its children; see the module's text.

    Returns:
        the project's folders; ``home`` exists afterwards, except outside a project: `symposium verdict` works in any
        folder and leaves nothing there.

    Raises:
        PermissionError: ``.symposium`` cannot be made here.
    """
    where = places()
    if HOME in os.environ or any((where.home.parent / name).exists() for name in ("params.yaml", "dvc.yaml")):
        where.home.mkdir(parents=True, exist_ok=True)
    values = {
        HOME: str(where.home),
        "PREFECT_HOME": str(where.prefect),
        **_TELEMETRY_OFF,
        **_PREFECT,
        **_THREADS,
    }
    for name, value in values.items():
        os.environ.setdefault(name, value)
    _prefer_own_python()
    _name_the_user()
    _reach_this_machine()
    if "PREFECT_API_URL" not in os.environ and (url := server_url("prefect")):
        os.environ["PREFECT_API_URL"] = f"{url}/api"
    return where


def start_side_by_side(processes: int) -> None:
    """Let threads of the processes that are started from now on sleep at once, if several compute at the same time.

    On two cores an update of SmolLM2 alone takes a third longer with threads that sleep at once, and one beside another
    a quarter longer with threads that spin first.
    """
    os.environ[_SPINS] = "0" if processes > 1 else _THREADS[_SPINS]


def server_url(name: str) -> str | None:
    """Return the address of the project's running server ``prefect`` or ``mlflow``, or None when none answers.

    Only servers announced in ``.symposium/servers.json`` count: whatever else listens on the usual port belongs to
    somebody else.
    """
    try:
        entry = json.loads(places().servers.read_text(encoding="utf-8"))[name]
        url = str(entry["url"])
        if is_gone(entry["process"]):
            return None  # it was killed, and another program may use its port now
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return url if answers(url, name) else None


def answers(url: str, name: str, timeout_s: float = 2.0) -> bool:
    """Return whether the server ``prefect``, ``mlflow`` or ``page`` at ``url`` reports to be healthy."""
    path = {"prefect": "/api/health", "mlflow": "/health", "page": "/health"}[name]
    try:
        with urllib.request.urlopen(url + path, timeout=timeout_s) as reply:
            return bool(reply.status == 200)
    except (OSError, HTTPException, ValueError):  # another program may listen there
        return False


def child_environment(**changes: str) -> dict[str, str]:
    """Return the environment for a child process that starts runs of its own, with these variables changed.

    Prefect hands the identity of a run to its process in ``PREFECT__...`` variables; a child that inherited them
    would take itself for its parent's run, so they are left out.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT__")}
    return {**kept, **changes}


def _reach_this_machine() -> None:
    """Let no proxy stand between processes of this machine: a run would wait for its own server in vain."""
    given = os.environ.get("no_proxy") or os.environ.get("NO_PROXY", "")
    names = [name.strip() for name in given.split(",") if name.strip()]
    if names != ["*"]:  # everything, and only if it is alone
        names += [name for name in _THIS_MACHINE if name not in names]
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(names)  # libraries read the one or the other


def _name_the_user() -> None:
    """Give a name to a user that the system does not know, as in many containers: DVC, MLflow and torch ask for it."""
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["USER"] = f"user-{os.getuid()}"


def _prefer_own_python() -> None:
    """Let ``python`` in a stage's command be this interpreter, also when its environment was not activated."""
    folder = str(Path(sys.executable).parent)
    parts = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if parts[0] != folder:
        os.environ["PATH"] = os.pathsep.join([folder, *(part for part in parts if part != folder)])
