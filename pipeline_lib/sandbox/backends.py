"""All backends, their options, and how to open them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from pipeline_lib.sandbox.backend import Backend, SandboxUnavailable
from pipeline_lib.sandbox.docker_jail import DEFAULT_IMAGE
from pipeline_lib.sandbox.jails import LEVELS, PROCESS_JAILS
from pipeline_lib.sandbox.jobs import Limits
from pipeline_lib.sandbox.local import LocalBackend
from pipeline_lib.sandbox.packages import DEFAULT_PACKAGES, find_packages
from pipeline_lib.sandbox.ray_backend import RayBackend
from pipeline_lib.sandbox.remote import RemoteBackend
from pipeline_lib.sandbox.seccomp import filters

_log = logging.getLogger(__name__)


def open_backend(name: str, slots: int, limits: Limits, options: dict[str, Any]) -> Backend:
    """Open the backend ``name``.

    Args:
        name: a key of `BACKENDS`.
        slots: concurrent programs; 0 means four per core.
        limits: what a program may use.
        options: of this backend; a missing one or None means the default.

    Raises:
        ValueError: the name, an option or its value is not accepted.
        SandboxUnavailable: the backend cannot run here.
    """
    if name not in BACKENDS:
        raise ValueError(f"unknown sandbox backend {name!r}; accepted: {', '.join(BACKENDS)}")
    accepted, opener = BACKENDS[name]
    given = {key: value for key, value in options.items() if value is not None}
    for key in given:
        if key not in accepted:
            raise ValueError(f"the sandbox backend {name!r} has no option {key!r}; accepted: {', '.join(accepted)}")
    level = given.get("min_isolation", "seccomp")
    if level not in LEVELS:
        raise ValueError(f"min_isolation is {level!r}; accepted: {', '.join(LEVELS)}")
    if slots < 0:
        raise ValueError(f"slots is {slots}; it must be positive, or 0 for four per core")
    return opener(slots, limits, given)


def _local(name: str, slots: int, limits: Limits, jails: list[str], options: dict[str, Any]) -> Backend:
    config = {
        "slots": slots or 4 * len(os.sched_getaffinity(0)),
        "jails": jails,
        "min_isolation": options.get("min_isolation", "seccomp"),
        "filters": {name: program.hex() for name, program in filters().items()},
        "packages": asdict(find_packages(options.get("packages", DEFAULT_PACKAGES))),
        "image": options.get("image", DEFAULT_IMAGE),
        "runtime": options.get("runtime"),
    }
    return LocalBackend(name, config, limits)


def _open_process(slots: int, limits: Limits, options: dict[str, Any]) -> Backend:
    jail = options.get("jail")
    if jail is not None and jail not in PROCESS_JAILS:
        raise ValueError(f"unknown jail {jail!r}; accepted: {', '.join(PROCESS_JAILS)}")
    return _local("process", slots, limits, [jail] if jail else list(PROCESS_JAILS), options)


def _open_docker(slots: int, limits: Limits, options: dict[str, Any]) -> Backend:
    return _local("docker", slots, limits, ["docker"], options)


def _open_auto(slots: int, limits: Limits, options: dict[str, Any]) -> Backend:
    """Open the strongest backend that works here: a container with its own kernel, a container, a jailed process."""
    level = {"min_isolation": options.get("min_isolation"), "packages": options.get("packages")}
    image = {"image": options.get("image")}
    attempts: list[tuple[str, dict[str, Any]]] = [
        ("docker", level | image | {"runtime": "runsc"}),
        ("docker", level | image),
        ("process", level),
    ]
    reasons = []
    for name, own in attempts:
        try:
            return open_backend(name, slots, limits, own)
        except SandboxUnavailable as error:
            reasons.append(str(error))
            _log.info("sandbox auto: %s", error)
    raise SandboxUnavailable("; ".join(reasons))


def _open_remote(slots: int, limits: Limits, options: dict[str, Any]) -> Backend:
    return RemoteBackend(limits, **options)


def _open_ray(slots: int, limits: Limits, options: dict[str, Any]) -> Backend:
    return RayBackend(open_backend, slots, limits, **options)


BACKENDS: dict[str, tuple[tuple[str, ...], Callable[[int, Limits, dict[str, Any]], Backend]]] = {
    "process": (("min_isolation", "packages", "jail"), _open_process),
    "docker": (("min_isolation", "packages", "image", "runtime"), _open_docker),
    "auto": (("min_isolation", "packages", "image"), _open_auto),
    "remote": (("address", "token", "token_file", "patience_s"), _open_remote),
    "ray": (("address", "batch", "inner", "min_isolation", "image"), _open_ray),
}
