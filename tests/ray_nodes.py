"""A Ray cluster of several nodes on this machine, for the scripts that tests run in an interpreter that has Ray."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def two_nodes() -> Iterator[tuple[Any, Callable[[], Any]]]:
    """Yield a cluster of a head and another node, and what adds one; each has one CPU, and a folder of its own.

    Nodes in one folder would share, and take away from each other, the code that they are sent.
    """
    os.environ |= {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    import ray
    from ray._common.utils import get_default_ray_temp_dir
    from ray.cluster_utils import Cluster

    # The head writes its address there, and does not make the folder.
    Path(get_default_ray_temp_dir()).mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        head = tempfile.TemporaryDirectory(
            prefix="ray-", ignore_cleanup_errors=True
        )  # short: it is in names of sockets
        given = {"num_cpus": 1, "include_dashboard": False, "temp_dir": stack.enter_context(head)}
        cluster = Cluster(initialize_head=True, head_node_args=given)
        stack.callback(cluster.shutdown)
        stack.callback(ray.shutdown)

        def add() -> Any:
            folder = tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)
            return cluster.add_node(num_cpus=1, temp_dir=stack.enter_context(folder))

        add()
        yield cluster, add
