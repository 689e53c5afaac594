"""All kinds of jails, how to start one, and its isolation level.

The level is not derived from the jail's name: a first child tries forbidden operations, see `level_of`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipeline_lib.sandbox.docker_jail import start_docker
from pipeline_lib.sandbox.packages import Packages
from pipeline_lib.sandbox.process_jails import start_bare, start_bwrap, start_unshare
from pipeline_lib.sandbox.worker import JailError, Worker

LEVELS = ("namespaces", "seccomp", "rlimits")  # strongest first
STARTERS: dict[str, Callable[[int, dict[str, Any]], Worker]] = {
    "bwrap": start_bwrap,
    "unshare": start_unshare,
    "bare": start_bare,
    "docker": start_docker,
}
PROCESS_JAILS = ("bwrap", "unshare", "bare")


def start_worker(kind: str, slot: int, config: dict[str, Any], flavour: str = "lean", name: str = "lean") -> Worker:
    """Start a jail of ``kind`` for ``slot`` and return its worker.

    Args:
        kind: a key of `STARTERS`.
        slot: number of the slot.
        config: ``limits``, ``filters``, ``packages`` (`packages.Packages` as a dict), ``run_folder``,
            ``min_isolation``, ``user`` (the user of programs if this process is root), and the jail's own keys.
        flavour: ``lean``, or ``packages`` for programs that may import a package.
        name: of the jail among those of its slot.

    Raises:
        JailError: the jail does not start on this machine, or is weaker than ``min_isolation``.
    """
    known = Packages(**config["packages"])
    own: dict[str, Any] = {"flavour": flavour, "name": name, "preload": (), "extra_mb": 0, "packages": ()}
    own |= {"wanted": known.names, "importable": known.modules}
    if flavour == "packages":
        own |= {"preload": known.preload, "extra_mb": known.extra_mb, "packages": known.places}
    worker = STARTERS[kind](slot, config | own)
    worker.again = lambda: start_worker(kind, slot, config, flavour, name)
    level = worker.facts["isolation"] = level_of(worker.facts)
    if LEVELS.index(level) > LEVELS.index(config["min_isolation"]):
        worker.close()
        missing = ", ".join(name for name, closed in worker.facts.items() if closed is False)
        raise JailError(
            f"reaches isolation level {level!r}, and min_isolation is {config['min_isolation']!r} (not: {missing})"
        )
    return worker


def level_of(facts: dict[str, Any]) -> str:
    """Return the isolation level that follows from the findings of the first child."""
    if not all(facts[name] for name in ("no_processes", "no_signals", "no_network", "no_files")):
        return "rlimits"
    return "namespaces" if facts["pid"] == 1 else "seccomp"
