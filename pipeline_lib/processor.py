"""This machine's processor: what it is, for reports and for choices between operations, and how its threads wait."""

import functools
import os
import platform
from pathlib import Path

#: Environment variables for threads that wait for each other, read when torch loads.  They must sleep soon: on a busy
#: machine threads that spin took seven times the CPU time of the work.  3,000 rounds were 36 microseconds on one
#: machine, and an idle core takes as long to wake up.
WAITING = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "3000"}


@functools.cache
def on_intel() -> bool:
    """Return whether the processor is known to be Intel's; a timing instead could choose differently in each run."""
    return "GenuineIntel" in _facts("vendor_id")


def machine() -> str:
    """Return processor, its vector instructions, cores and GPUs, e.g. ``AMD EPYC (AVX512), 2 cores, no GPU``."""
    # Seconds, which no choice between operations needs.
    import torch

    # Two processors of one name may have other instructions, round differently, and give another run.
    vectors = torch.backends.cpu.get_cpu_capability()
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    name = next(iter(_facts("model name")), platform.machine())
    return f"{name} ({vectors}), {os.cpu_count()} cores, {', '.join(gpus) or 'no GPU'}"


def _facts(name: str) -> list[str]:
    """Return what Linux says under a name, of each core; elsewhere nothing."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [line.partition(":")[2].strip() for line in lines if line.startswith(name)]
