"""The memory of this machine: what there is, what is free for this process, and what it gives back.

Also the bounds that keep the need for memory low.  They are here, because what computes that need in advance
(`pipeline_lib.assembly.memory`) must not load a library for models.
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import psutil

#: Actions sampled at the same time, if memory allows it; more are hardly faster.
MOST_ROWS = 256
#: Maximum number of prompt tokens (padded) that are read in one pass.
PREFILL_TOKENS = 4096
#: Bytes of cached first-token logits per model; an update of its weights clears them.
FIRST_LOGITS_BYTES = 256 * 2**20
#: Calls that draw at least so many tokens for an action pack the base's matrices first, where that helps
#: (`pipeline_lib.rollouts.kernels.packed`); it takes as long as two steps.
PACKED_FROM = 32
#: Free bytes that packed matrices leave at least: for kernels, the logits of the draws and the programs of the actions.
LEFT_BESIDE_PACKED = 2**30
#: Maximum number of logits in the update at once (float32: four bytes each).
LOGITS_CHUNK = 2**23
#: Below a frozen head, probabilities are computed for such a part of these at a time: it stays in a processor's cache.
SOFTMAX_PARTS = 4
#: Bytes of products and attention that the update of a large model on a CPU keeps under gradient checkpointing.
KEPT_PRODUCTS = 288 * 2**20
#: On a CPU, passes of a large model's update get no further tree of tokens beyond this number (padded).
PASS_TOKENS = 640
#: Maximum number of tokens (padded) that a critic's base reads in one pass.
CRITIC_TOKENS = 4096
#: Maximum number of tokens (padded) of a large model's warm start at once.
WARM_START_TOKENS = 1024
#: A model of more parameters is large: it uses several threads, is never copied for adapters, and gives memory back.
SMALL_MODEL = 8_000_000

#: By how much a process that trains a large model may grow before it gives freed memory back.
HELD_AT_MOST = 128 * 2**20

#: On a CPU oneDNN compiles a kernel of half a megabyte for each new shape of a product; it keeps the last so many, and
#: so does torch.  With 1,024, the default of both, a process holds half a gigabyte more and is not faster, since few
#: shapes come again so much later.
KEPT_KERNELS = 256
for _name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):  # read at the first product
    os.environ.setdefault(_name, str(KEPT_KERNELS))

_GROUPS = Path("/sys/fs/cgroup")
#: By name of the hierarchy in /proc/self/cgroup: its folder, the files with limit and use, and how lines of memory.stat
#: begin that count the groups within, too.
_HIERARCHIES = {
    "": (_GROUPS, "memory.max", "memory.current", ""),
    "memory": (_GROUPS / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
}
#: Kinds of memory whose content is in files: the kernel takes it back when a group needs memory.
_CACHED = ("inactive_file", "active_file")


def all_memory() -> int:
    """Return the bytes that a process may hold here: the machine's, or less in a container or below its own limit."""
    space = resource.getrlimit(resource.RLIMIT_AS)[0]
    own = [] if space == resource.RLIM_INFINITY else [space]
    return min([int(psutil.virtual_memory().total), *own, *(limit for limit, _ in _groups())])


def free_memory() -> int:
    """Return how many bytes this process can still take: of the machine, of its control group and of its limits."""
    found = [int(psutil.virtual_memory().available), *(limit - used for limit, used in _groups())]
    space = resource.getrlimit(resource.RLIMIT_AS)[0]
    if space != resource.RLIM_INFINITY:
        found.append(space - int(psutil.Process().memory_info().vms))
    return max(0, min(found))


def held_memory() -> int:
    """Return the bytes of memory that this process holds now."""
    return int(psutil.Process().memory_info().rss)


def give_back_memory() -> None:
    """Return to the system what the C library keeps of freed memory (glibc; elsewhere nothing happens).

    Blocks of some megabytes that are freed between others leave gaps, so a process grows although nothing leaks.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class GivesBack:
    """Gives freed memory back whenever this process has grown by `HELD_AT_MOST` since it did so last.

    Small objects that last, such as the nodes of a graph of gradients, come to lie in the gaps that large blocks leave,
    and the next large blocks no longer fit: without this, a forward pass with checkpointing takes as much memory as one
    without.  To give back after every layer would cost a fifth of the time, since new pages are slow.
    """

    def __init__(self) -> None:
        self._least = held_memory()

    def __call__(self) -> None:
        """Look how much is held, and give back if it is too much."""
        if held_memory() > self._least + HELD_AT_MOST:
            give_back_memory()
            self._least = held_memory()
        self._least = min(self._least, held_memory())


def _groups() -> Iterator[tuple[int, int]]:
    """Yield limit and use, without cached files, of this process's control groups, the outer ones included."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return
    for _, kinds, path in (line.split(":", 2) for line in lines):
        for kind in {*kinds.split(",")} & _HIERARCHIES.keys():
            root, limit, used, begin = _HIERARCHIES[kind]
            own = root / path.lstrip("/")
            for folder in (own, *own.parents):
                if not folder.is_relative_to(root):
                    break
                try:
                    yield int((folder / limit).read_text()), int((folder / used).read_text()) - _cached(folder, begin)
                except (OSError, ValueError):  # no limit here ("max"), or a group of another namespace
                    continue


def _cached(group: Path, begin: str) -> int:
    """Return the bytes of files that a control group has read or written and the kernel still keeps in memory."""
    lines = (line.split() for line in (group / "memory.stat").read_text(encoding="utf-8").splitlines())
    kinds = [begin + kind for kind in _CACHED]
    return sum(int(value) for kind, value in lines if kind in kinds)
