"""Waiting for what other processes do, for some minutes at most: other tests may keep every core busy meanwhile."""

import time
from collections.abc import Callable

import psutil


def wait(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
