"""Checks the sandbox on a Ray cluster of two nodes on this machine, one of which dies.

Needs Ray and this project's sources, which the nodes are sent: ``python -m tests.sandbox.ray_cluster`` ends with 0.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

from pipeline_lib.sandbox import Executor, Job, SandboxUnavailable, Status
from tests.ray_nodes import two_nodes

TESTS = "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(2) == 3\n"


def jobs(count: int, text: str, seconds: float = 0.0) -> list[Job]:
    """Return so many different jobs, every second of which is right, whose calls take so long."""
    code = "import time\ndef f(x):\n    time.sleep({seconds})\n    return x + {right}\n# {text} {n}"
    return [Job(str(n), code.format(seconds=seconds, right=n % 2, text=text, n=n), TESTS, "f") for n in range(count)]


def where() -> str:
    """Return the file of the library on a node."""
    import pipeline_lib

    return str(pipeline_lib.__file__)


def both_nodes_work_and_one_may_die(cluster: Any, add: Callable[[], Any]) -> None:
    """A node that dies under way costs no verdict; one that joins is used."""
    import ray

    with Executor("ray", slots=1, address=cluster.address, batch=8) as executor:
        verdicts = executor.run(jobs(64, "first"))
        assert [(verdict.id, verdict.passed) for verdict in verdicts] == [(str(n), 2 * (n % 2)) for n in range(64)]
        health = executor.health()
        assert len(health["nodes"]) == 2, health
        assert "/runtime_resources/" in ray.get(ray.remote(where).remote()), (
            "the nodes do not have the code they are sent"
        )
        assert all(node["done"] >= 8 for node in health["nodes"].values()), health
        stream = executor.stream(jobs(64, "again", 0.05))
        first = next(stream)
        cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
        rest = list(stream)
        assert {verdict.id for verdict in (first, *rest)} == {str(n) for n in range(64)}
        assert all(verdict.passed == 2 * (int(verdict.id) % 2) for verdict in (first, *rest))
        add()
        cluster.wait_for_nodes()
        assert [verdict.status for verdict in executor.run(jobs(2, "last"))] == [Status.FAILED, Status.PASSED]
        assert len(executor.health()["nodes"]) == 2
    try:
        executor.run(jobs(1, "closed"))
    except RuntimeError as error:
        assert "closed" in str(error)
    else:
        raise AssertionError("a closed executor took a job")


def an_inner_backend_that_does_not_start_says_why(cluster: Any, add: Callable[[], Any]) -> None:
    """The reason on the node reaches the caller."""
    try:
        Executor("ray", slots=1, address=cluster.address, inner="docker", image="no-such-image")
    except SandboxUnavailable as error:
        assert "no-such-image" in str(error) or "Docker" in str(error), error
    else:
        raise AssertionError("an image that does not exist was accepted")


def batch_must_be_positive(cluster: Any, add: Callable[[], Any]) -> None:
    """Bad values are named before anything starts."""
    try:
        Executor("ray", address=cluster.address, batch=0)
    except ValueError as error:
        assert "batch is 0" in str(error)
    else:
        raise AssertionError("a batch of 0 was accepted")


def main() -> int:
    """Run every check on one cluster."""
    with two_nodes() as (cluster, add):
        for check in (
            batch_must_be_positive,
            both_nodes_work_and_one_may_die,
            an_inner_backend_that_does_not_start_says_why,
        ):
            started = time.monotonic()
            check(cluster, add)
            print(f"{check.__name__}: {time.monotonic() - started:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
