"""The same executor on a Ray cluster: one sandbox per node; free nodes get batches of jobs.

Promises: if a node dies, its batch runs again on another node; new nodes are used from the next call on.  Nodes need
Python and what the sandbox needs, and get this library's code.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline_lib.sandbox.backend import Backend, SandboxUnavailable
from pipeline_lib.sandbox.jobs import Limits, Status, Verdict
from pipeline_lib.sandbox.local import blank_verdict
from pipeline_lib.sandbox.tests_source import Planned

_LIBRARY = Path(__file__).parents[1]
_BESIDE = "symposium"  # a package that code of a project's own may import; it insists on having the library beside it


def connect(address: str, project: Path | None = None) -> Any:
    """Return the module ``ray``, connected to a cluster; a connection that this process has already is kept.

    Args:
        address: of the cluster; ``auto`` finds the one this machine belongs to.
        project: a folder that the nodes get beside the library, without what git ignores in it; it is the working
            directory there.

    Raises:
        ConnectionError, RuntimeError: Ray is not installed, there is no cluster, or the folder is too large.
    """
    try:
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise ConnectionError(f"Ray is not installed: pip install 'ray>=2.50' ({error})") from None
    if ray.is_initialized():
        return ray
    with tempfile.TemporaryDirectory() as folder:
        for path in (_LIBRARY, _LIBRARY.with_name(_BESIDE), *project.absolute().iterdir()) if project else ():
            if path.exists() and not (link := Path(folder, path.name)).is_symlink():
                link.symlink_to(path)
        shipped = {"working_dir": folder} if project else {"py_modules": [str(_LIBRARY)]}
        ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING, runtime_env=shipped)
    return ray


_TRIES = 3  # nodes that may die while they run a batch before its jobs end as infra_error


#: The type of `backends.open_backend`, which imports this module.
Opener = Callable[[str, int, Limits, dict[str, Any]], Backend]


class Host:
    """Runs on one node: holds a backend there."""

    def __init__(self, opener: Opener, inner: str, slots: int, limits: dict[str, Any], options: dict[str, Any]) -> None:
        self.backend = opener(inner, slots, Limits(**limits), options)

    def run(self, jobs: list[Planned]) -> list[Verdict]:
        """Return the verdicts of a batch, in any order."""
        return list(self.backend.execute(jobs))

    def health(self) -> dict[str, Any]:
        """Return the facts of the backend."""
        return self.backend.health()

    def close(self) -> None:
        """End the backend."""
        self.backend.close()


class RayBackend:
    """Spreads jobs over the nodes of a Ray cluster.

    Args:
        opener: opens the backends on the nodes.
        slots: concurrent programs on each node; 0 means four per core of the node.
        limits: what a program may use.
        address: of the cluster; ``auto`` finds the one this machine belongs to.
        batch: jobs per task.
        inner: the backend on each node: ``process``, ``docker`` or ``auto``.
        options: of the inner backend.

    Raises:
        SandboxUnavailable: Ray is not installed, there is no cluster, or the sandbox does not start on its nodes.
    """

    name = "ray"

    def __init__(
        self,
        opener: Opener,
        slots: int,
        limits: Limits,
        address: str = "auto",
        batch: int = 128,
        inner: str = "process",
        **options: Any,
    ) -> None:
        if batch < 1:
            raise ValueError(f"batch is {batch}; it must be positive")
        self._batch = batch
        self._arguments = (opener, inner, slots, asdict(limits), options)
        self._hosts: dict[str, Any] = {}
        self._closed = False
        failed = f"the sandbox backend 'ray' cannot start at {address!r}"
        try:
            self._ray = connect(address)
        except (ConnectionError, RuntimeError) as error:
            raise SandboxUnavailable(f"{failed}: {error}") from None
        try:
            self._find_hosts()
            first = next(iter(self._hosts.values())).health.remote()
            self.level = str(self._ray.get(first, timeout=120)["isolation"])
        except self._ray.exceptions.RayError as error:
            raise SandboxUnavailable(f"{failed}: {error}") from None

    def execute(self, jobs: Sequence[Planned]) -> Iterator[Verdict]:
        """Yield the verdicts of ``jobs`` as batches come back."""
        if self._closed:
            raise RuntimeError("the executor is closed")
        ray = self._ray
        self._find_hosts()
        size = max(1, min(self._batch, -(-len(jobs) // max(1, len(self._hosts)))))
        waiting = [(list(jobs[at : at + size]), 0) for at in range(0, len(jobs), size)]
        running: dict[Any, tuple[str, list[Planned], int]] = {}
        while waiting or running:
            busy = {node for node, _, _ in running.values()}
            for node in [node for node in self._hosts if node not in busy][: len(waiting)]:
                batch, tries = waiting.pop(0)
                task = self._hosts[node].run.remote(batch)
                running[task] = (node, batch, tries)
            if not running:  # no node is left
                for batch, _ in waiting:
                    yield from (blank_verdict(p, Status.INFRA_ERROR, "the Ray cluster has no node left") for p in batch)
                return
            (done, *_), _ = ray.wait(list(running), num_returns=1)
            node, batch, tries = running.pop(done)
            try:
                verdicts = ray.get(done)
            except ray.exceptions.RayError as error:
                self._hosts.pop(node, None)
                self._find_hosts()
                if tries + 1 < _TRIES and self._hosts:
                    waiting.append((batch, tries + 1))
                else:
                    yield from (blank_verdict(planned, Status.INFRA_ERROR, str(error)) for planned in batch)
                continue
            yield from verdicts

    def health(self) -> dict[str, Any]:
        """Return the facts of every node."""
        self._find_hosts()
        tasks = {node: host.health.remote() for node, host in self._hosts.items()}
        return {"isolation": self.level, "nodes": {node: self._ray.get(task) for node, task in tasks.items()}}

    def close(self) -> None:
        """End the executors of all nodes; the cluster keeps running."""
        if self._closed:
            return
        self._closed = True
        for host in self._hosts.values():
            try:
                self._ray.get(host.close.remote(), timeout=30)
            except self._ray.exceptions.RayError:
                continue  # it has ended already
            self._ray.kill(host)

    def _find_hosts(self) -> None:
        """Start a host on every node without one; drop those of dead nodes."""
        ray = self._ray
        alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
        for node in set(self._hosts) - alive:
            del self._hosts[node]
        for node in sorted(alive - set(self._hosts)):
            strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
            actor = ray.remote(Host).options(num_cpus=0, scheduling_strategy=strategy, max_restarts=0)
            self._hosts[node] = actor.remote(*self._arguments)
        if not self._hosts:
            time.sleep(1)
