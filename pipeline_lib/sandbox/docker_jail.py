"""A jail in a container: one per slot, long-lived, hardened, without ``exec``.

The container runs the fork server as its process 1, connects back through a socket in a shared folder, and removes
itself when the connection closes.  So it also ends when the judge, its parent or the trainer is killed.  With another
runtime, such as gVisor, the container may have its own kernel, which cannot pass descriptors to this one.  Then every
child gets a separate connection.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_lib.sandbox import runtime
from pipeline_lib.sandbox.runtime import DATA, ENVIRONMENT, PACKAGES, SCRATCH, contents_digest, start
from pipeline_lib.sandbox.worker import JailError, NoPackages, Worker

DEFAULT_IMAGE = "symposium-sandbox"
LABEL = "symposium-sandbox"  # on containers: their owner; on images: a digest of their contents
PLACE = "/symposium"  # path of the fork server in an image, and of the socket in a container


@contextmanager
def daemon() -> Iterator[tuple[Any, Any]]:
    """Yield a client of the Docker daemon, and the module of its errors; the SDK need not be installed for the rest.

    Raises:
        JailError: there is no SDK or no daemon, or it refuses; the message says what to do.
    """
    try:
        import docker
    except ImportError as error:
        raise JailError(f"the Docker SDK is not installed: pip install 'docker>=7.1' ({error})") from None
    where = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    client = None
    try:
        client = docker.DockerClient.from_env(timeout=30)
        yield client, docker.errors
    except docker.errors.ImageNotFound as error:
        raise JailError(
            f"the image does not exist: {error.explanation}; make it with `python -m pipeline_lib.sandbox build-image`"
        ) from None
    except docker.errors.APIError as error:
        raise JailError(f"the Docker daemon at {where} refuses: {error.explanation or error}") from None
    except (docker.errors.DockerException, OSError) as error:
        raise JailError(
            f"no Docker daemon answers at {where}: start one, set DOCKER_HOST, or choose another backend ({error})"
        ) from None
    finally:
        if client is not None:
            client.close()


_START_S = 60.0
_CONTAINER_MB = 512  # beyond the limit of one program: fork server, temporary files
_PIDS = 32  # beyond the threads of one program


def start_docker(slot: int, config: dict[str, Any]) -> Worker:
    """Start a container with a fork server; see `jails.start_worker`."""
    folder = Path(config["run_folder"]) / f"docker-{slot}-{config['name']}"
    folder.mkdir(mode=0o711, exist_ok=True)
    apart = config.get("runtime") is not None
    place = folder / "control"
    with ExitStack() as undo:
        meeting = undo.enter_context(_listen(folder / "meeting", socket.SOCK_STREAM)) if apart else None
        with _listen(place, socket.SOCK_SEQPACKET) as listener, daemon() as (client, errors):
            image = client.images.get(config["image"])
            packages = _check_image(config["image"], image, config["wanted"], config["flavour"])
            container = client.containers.create(image.id, **_options(config, folder))
            jail = DockerJail("docker", container.id)
            undo.callback(jail.kill)  # one that was never started does not remove itself
            container.start()
            control = undo.enter_context(_accept(listener, client, errors, jail))
        place.unlink()
        inside = {
            "path": None,
            "packages": packages,
            "scratch": SCRATCH,
            "uid": None,
            "readable": ["/usr", "/lib", "/lib64", "/bin", "/opt", "/py", PLACE, *DATA, "/dev/urandom"],
            "writable": [SCRATCH, "/dev/null"],
            "threads_base": 0,
            "meet": f"{PLACE}/run/meeting" if apart else None,
            "filter": config["filters"].get("fork_server_connecting" if apart else "fork_server", ""),
            "program_filter": config["filters"].get("program_connected" if apart else "program", ""),
        }
        worker = Worker(jail, control, config | inside, meeting)
        undo.pop_all()  # the worker owns the resources from here on
    worker.facts["no_files"] = True  # the files in a container are those of its image, not of this machine
    return worker


@dataclass(slots=True)
class DockerJail:
    """A running container; ``host_pid`` is its first process where the daemon is on this machine."""

    name: str
    container: str
    host_pid: int = 0

    def kill(self) -> str:
        """Remove the container and wait until it is gone."""
        with suppress(JailError), daemon() as (client, errors), suppress(errors.NotFound):
            with suppress(errors.APIError):  # its removal may have begun
                client.api.remove_container(self.container, force=True, v=True)
            client.api.wait(self.container, condition="removed", timeout=10)
        return ""


def _listen(place: Path, kind: socket.SocketKind) -> socket.socket:
    place.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, kind)
    listener.bind(str(place))
    place.chmod(0o666)  # the program's user must reach it; the folder's name cannot be guessed
    listener.listen(1)
    return listener


def remove_containers(mine: bool) -> None:
    """Remove containers of parents of judges that are dead or, with ``mine``, of this one, whatever their state.

    A daemon that stops between making a container and starting it leaves one that nothing else removes.  A daemon that
    does not answer is ignored: the next one removes what is left.
    """
    with suppress(JailError), daemon() as (client, errors):
        for container in client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True):
            host, _, owner = container.labels[LABEL].partition("/")
            unwanted = owner == runtime.identity(os.getpid()) if mine else not runtime.alive(owner)
            if host == os.uname().nodename and unwanted:
                with suppress(errors.APIError):
                    container.remove(force=True, v=True)


def _check_image(name: str, image: Any, wanted: Sequence[str], flavour: str) -> list[str]:
    """Return the folders with packages in the image.

    Raises:
        JailError: it was built for another version of the sandbox, or lacks requested packages.
        NoPackages: it lacks numpy, the default.
    """
    labels = image.labels or {}
    if labels.get(LABEL) != contents_digest():
        raise JailError(
            f"the image {name!r} was not built for this version of the sandbox; "
            "build it again with `python -m pipeline_lib.sandbox build-image`"
        )
    missing = sorted(set(wanted) - set(labels.get(f"{LABEL}.packages", "").split()))
    if missing and missing != ["numpy"]:
        names = " ".join(wanted)
        raise JailError(
            f"the image {name!r} lacks the packages {missing}; build it again with "
            f"`python -m pipeline_lib.sandbox build-image --packages {names}`"
        )
    if flavour == "lean":
        return []
    if missing:
        raise NoPackages(f"the image {name!r} has no numpy; build it where numpy is installed")
    return [PACKAGES]


def _options(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    limits = config["limits"]
    memory = f"{limits['memory_mb'] + config['extra_mb'] + _CONTAINER_MB}m"
    uid = config["user"]
    scratch = f"size={limits['file_mb']}m,nr_inodes=1024,mode=1777,noexec,nosuid,nodev"
    return {
        "entrypoint": ["python3", *start("zygote", PLACE), f"{PLACE}/run/control"],
        "command": [],
        # A pipe as standard input: runsc gives its container's user the device that is open there, /dev/null otherwise.
        "stdin_open": True,
        "stop_signal": "SIGKILL",  # process 1 ignores others, and a daemon that shuts down would wait for it
        "auto_remove": True,
        "labels": {LABEL: f"{os.uname().nodename}/{runtime.identity(os.getppid())}"},
        "environment": {name: value for name, value in ENVIRONMENT.items() if name != "PATH"},
        "working_dir": SCRATCH,
        "user": f"{uid}:{uid}",
        "network_mode": "none",
        "ipc_mode": "none",
        "read_only": True,
        "tmpfs": {SCRATCH: scratch},
        "volumes": {str(folder): {"bind": f"{PLACE}/run", "mode": "ro"}},
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "pids_limit": limits["processes"] + _PIDS,
        "mem_limit": memory,
        "memswap_limit": memory,
        "log_config": {"Type": "none"},
        "runtime": config.get("runtime"),
    }


def _accept(listener: socket.socket, client: Any, errors: Any, jail: DockerJail) -> socket.socket:
    """Wait until the fork server connects; raises JailError with the container's state if it does not."""
    listener.settimeout(0.2)
    for _ in range(int(_START_S / 0.2)):
        with suppress(TimeoutError):
            control, _ = listener.accept()
            with suppress(errors.NotFound):
                jail.host_pid = client.api.inspect_container(jail.container)["State"]["Pid"]
            return control
        try:
            state = client.api.inspect_container(jail.container)["State"]
        except errors.NotFound:
            state = {"Running": False, "ExitCode": "unknown"}
        if not state["Running"] and state.get("Status") != "created":
            raise JailError(
                f"the container ended while starting (exit code {state['ExitCode']}); "
                "its image needs python3, version 3.11 or newer, and the daemon must see this machine's files"
            )
    raise JailError("the fork server in the container does not connect; the daemon must see this machine's files")
