"""The memory of this machine that is still free for this process."""

from __future__ import annotations

import resource
from pathlib import Path

import psutil
import torch

_CGROUP_FILES = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def free_memory(device: torch.device | None = None) -> int:
    """Return how many bytes this process can still take: of a GPU, or of the machine and its limits."""
    if device is not None and device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    found = [int(psutil.virtual_memory().available)]
    for limit, used in _CGROUP_FILES:
        try:
            found.append(int(Path(limit).read_text()) - int(Path(used).read_text()))
        except (OSError, ValueError):  # no such group, or "max"
            continue
    space = resource.getrlimit(resource.RLIMIT_AS)[0]
    if space != resource.RLIM_INFINITY:
        found.append(space - int(psutil.Process().memory_info().vms))
    return max(0, min(found))
