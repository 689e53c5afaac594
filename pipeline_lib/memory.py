"""The memory of this machine: what is still free for this process, and giving back what the allocator holds."""

from __future__ import annotations

import ctypes
import functools
import resource
from pathlib import Path
from typing import Any

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


def give_back() -> None:
    """Return memory that was freed, but is still held by the allocator, to the system."""
    if (libc := _libc()) is not None:
        libc.malloc_trim(0)


@functools.cache
def _libc() -> Any:
    """Return the C library if it is glibc, whose allocator keeps what is freed."""
    try:
        libc = ctypes.CDLL("libc.so.6")
        libc.malloc_trim.argtypes = [ctypes.c_size_t]
    except (OSError, AttributeError):
        return None
    return libc
