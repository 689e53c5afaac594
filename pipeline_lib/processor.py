"""What this machine's processor is, for choices between operations that were measured on some processors only."""

import contextlib
import functools
from pathlib import Path


@functools.cache
def on_intel() -> bool:
    """Return whether the processor is known to be Intel's; a timing instead could choose differently in each run."""
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
        return any("GenuineIntel" in line for line in lines)
    return False
