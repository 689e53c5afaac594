"""A description of this machine for a page."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def machine() -> str:
    """Return processor, cores and GPUs, for example ``an AMD EPYC with 2 cores, no GPU``."""
    import torch

    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return f"{_processor()}, {os.cpu_count()} cores, {', '.join(gpus) or 'no GPU'}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
