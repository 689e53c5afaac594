"""Seeds as a function of where they are used: there is no generator state, so order and batch change no random draw."""

from __future__ import annotations

from pipeline_lib.storage import digest


def derive(*parts: int | str | tuple[int, ...]) -> int:
    """Return a seed in [0, 2**60) that depends on every part and on nothing else."""
    return int(digest([list(part) if isinstance(part, tuple) else part for part in parts])[:15], 16)
