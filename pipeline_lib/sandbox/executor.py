"""The entry point of the sandbox: opens a backend, takes jobs, returns verdicts in input order.

Promises: one verdict per job; jobs that differ only in their id run once; a job that cannot be run (too long, not text)
gets a verdict; and tests that cannot judge anything raise an error before anything runs.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import lru_cache
from operator import attrgetter
from types import TracebackType
from typing import Any, Protocol

from pipeline_lib.sandbox.backend import Backend, Planner, SandboxUnavailable
from pipeline_lib.sandbox.docker_jail import DEFAULT_IMAGE
from pipeline_lib.sandbox.jails import LEVELS, PROCESS_JAILS
from pipeline_lib.sandbox.jobs import SLOTS_PER_CORE, Job, Limits, Status, Verdict
from pipeline_lib.sandbox.local import LocalBackend, blank_verdict
from pipeline_lib.sandbox.packages import DEFAULT_PACKAGES, find_packages
from pipeline_lib.sandbox.ray_backend import RayBackend
from pipeline_lib.sandbox.remote import RemoteBackend
from pipeline_lib.sandbox.seccomp import filters
from pipeline_lib.sandbox.tests_source import Planned

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
        "slots": slots or SLOTS_PER_CORE * len(os.sched_getaffinity(0)),
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


_CACHE_SIZE = 50_000


class Executor:
    """Runs untrusted programs.

    Args:
        backend: where programs run: ``process``, ``docker``, ``remote``, ``ray``, or ``auto`` for the strongest that
            works on this machine.
        slots: concurrent programs (per node on Ray; a server uses its own number); None or 0 means four per core.
        limits: what a program may use; a job may have its own.
        cache: number of verdicts to cache; 0 turns the cache off.
        options: of the backend; None means its default:
            min_isolation: ``process``, ``docker``, ``auto``, ``ray``: weakest isolation that is accepted:
                ``namespaces``, ``seccomp`` (the default) or ``rlimits``.
            packages: ``process``, ``docker``, ``auto``: what programs may import besides the standard library, by
                pip's names (numpy by default); installed here, or for a container in its image.
            jail: ``process``: the kind of jail, ``bwrap``, ``unshare`` or ``bare``; by default the first that works.
            image: ``docker``, ``auto``, ``ray``: made by ``python -m pipeline_lib.sandbox build-image``.
            runtime: ``docker``: the containers' runtime, for example ``runsc``; by default the daemon's own.
            address: ``remote``: of the server; ``ray``: of the cluster.
            token: ``remote``: of the server; by default from ``token_file`` or the environment variable
                ``SYMPOSIUM_SANDBOX_TOKEN``.
            token_file: ``remote``: a file that holds the token.
            patience_s: ``remote``: seconds to try when the server does not answer.
            batch: ``ray``: jobs per task.
            inner: ``ray``: the backend on each node.

    Raises:
        ValueError: an argument, or its value, is not accepted.
        SandboxUnavailable: the backend cannot run here.
    """

    def __init__(
        self,
        backend: str = "process",
        slots: int | None = None,
        limits: Limits | None = None,
        cache: int = _CACHE_SIZE,
        **options: Any,
    ) -> None:
        self.limits = limits or Limits()
        check_limits(self.limits)
        self._cache: OrderedDict[str, Verdict] = OrderedDict()
        self._cache_size = cache
        self._backend: Backend = open_backend(backend, slots or 0, self.limits, options)
        self._planner = Planner(self._backend)

    def run(self, jobs: Sequence[Job]) -> list[Verdict]:
        """Return the verdicts of ``jobs`` in input order.

        Raises:
            BadTests: the tests of a job cannot judge anything, or `unittest` cannot load them; the message names it.
        """
        verdicts: list[Verdict | None] = [None] * len(jobs)
        for index, verdict in self._stream(jobs):
            verdicts[index] = verdict
        return [verdict for verdict in verdicts if verdict is not None]

    def stream(self, jobs: Sequence[Job]) -> Iterator[Verdict]:
        """Yield the verdicts of ``jobs`` as they arrive, with the ``id`` of their job.  Raises as `run` does."""
        for _, verdict in self._stream(jobs):
            yield verdict

    def health(self) -> dict[str, Any]:
        """Return facts about the backend and the cache."""
        return {"backend": self._backend.name, "cached": len(self._cache), **self._backend.health()}

    def close(self) -> None:
        """End every process of the sandbox; a second call does nothing."""
        self._backend.close()

    def __enter__(self) -> Executor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _stream(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Verdict]]:
        places: dict[str, list[int]] = {}
        ready: list[tuple[int, Verdict]] = []
        pending: list[Planned] = []
        for job in jobs:
            _check(job)
        for index, (job, planned) in enumerate(zip(jobs, self._planner.plan(jobs), strict=True)):
            if not isinstance(planned, Verdict):
                planned = self._refuse(planned) or planned
            if isinstance(planned, Verdict):
                ready.append((index, planned))
                continue
            key = job_key(job, self.limits)
            known = self._recall(key)
            if known is not None:
                ready.append((index, replace(known, id=job.id)))
                continue
            if key not in places:
                pending.append(replace(planned, job=replace(job, id=key)))
            places.setdefault(key, []).append(index)
        yield from ready
        for verdict in self._backend.execute(pending):
            self._remember(verdict)
            for index in places[verdict.id]:
                yield index, replace(verdict, id=jobs[index].id)

    # No lock, which another thread may hold while this process is forked: each operation is atomic.
    def _recall(self, key: str) -> Verdict | None:
        known = self._cache.get(key)
        if known is not None:
            with suppress(KeyError):  # another thread has dropped it
                self._cache.move_to_end(key)
        return known

    def _remember(self, verdict: Verdict) -> None:
        if verdict.status is Status.INFRA_ERROR or not self._cache_size:
            return
        self._cache[verdict.id] = verdict
        with suppress(KeyError):  # another thread has dropped the last one
            while len(self._cache) > self._cache_size:
                self._cache.popitem(last=False)

    def _refuse(self, planned: Planned) -> Verdict | None:
        """Return the verdict of a program that cannot be started (too long, not text), else None."""
        job = planned.job
        limit = (job.limits or self.limits).code_kb
        try:
            size = len(job.code.encode())
        except UnicodeEncodeError as error:
            return blank_verdict(planned, Status.LOAD_ERROR, f"the program is not valid text: {error}")
        if size > limit << 10:
            return blank_verdict(
                planned, Status.LOAD_ERROR, f"the program is {size >> 10} KiB long, {limit} KiB are allowed"
            )
        return None


def _check(job: Job) -> None:
    for name in ("id", "code", "tests", "entry_point", "prelude"):
        value = getattr(job, name)
        if not isinstance(value, str):
            raise TypeError(f"job {job.id!r}: {name} is {type(value).__name__}; it must be str")
    if not job.entry_point.isidentifier():
        raise ValueError(f"job {job.id!r}: entry_point is {job.entry_point!r}; it must be a function's name")
    if job.limits is not None:
        check_limits(job.limits)


def check_limits(limits: Limits) -> None:
    """Raise ValueError unless every limit is positive."""
    for name, value in asdict(limits).items():
        if not value > 0:
            raise ValueError(f"limits.{name} is {value}; it must be positive")


def job_key(job: Job, limits: Limits) -> str:
    """Return the digest of everything that determines a job's verdict."""
    parts = [str(value).encode("utf-8", "surrogatepass") for value in _determining(job)]
    head = f"{[len(part) for part in parts]} {_limits_text(job.limits or limits)}"
    return hashlib.sha256(b"".join([head.encode(), *parts])).hexdigest()


_determining = attrgetter(*(name for name in Job.__dataclass_fields__ if name not in ("id", "limits")))


@lru_cache(maxsize=64)
def _limits_text(limits: Limits) -> str:
    return repr(limits)


class Section(Protocol):
    """A ``sandbox`` section of the settings: its other keys are options of the backend."""

    @property
    def kind(self) -> str:
        """Return the backend."""
        ...

    def model_dump(self) -> dict[str, Any]:
        """Return all keys and values."""
        ...


def make_executor(section: Section) -> Executor:
    """Start the sandbox that a ``sandbox`` section describes.

    Raises:
        ValueError: a value is not accepted.
        SandboxUnavailable: it cannot run here; the message says why and what to do.
    """
    options = section.model_dump()
    limits = Limits(**options.pop("limits"))
    del options["infra_error_share"]  # used by the code that receives the verdicts
    return Executor(options.pop("kind"), options.pop("slots"), limits, **options)
