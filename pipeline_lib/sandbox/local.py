"""The backend on this machine: jobs go to the slots of the process that gives them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from pipeline_lib.sandbox import wire
from pipeline_lib.sandbox.backend import SandboxUnavailable
from pipeline_lib.sandbox.jobs import Limits, Verdict
from pipeline_lib.sandbox.slots import Entry, Slots
from pipeline_lib.sandbox.tests_source import Planned


class LocalBackend:
    """Runs jobs in jails on this machine.

    A process that is forked after it was opened gets slots of its own with its first job.

    Args:
        name: of the backend.
        config: of `slots.Slots`, without limits and path.
        limits: what a program may use.

    Raises:
        SandboxUnavailable: it cannot run here.
    """

    def __init__(self, name: str, config: dict[str, Any], limits: Limits) -> None:
        self.name = name
        self._config = config | {"limits": asdict(limits), "path": _search_path()}
        self._limits = limits
        self._closed = False
        self._slots: dict[int, Slots] = {}  # by process
        self._opening: dict[int, threading.Lock] = {}  # by process: a forked one may get its parent's locked
        try:
            self.level = self._here().level
        except SandboxUnavailable as error:
            raise SandboxUnavailable(f"the sandbox backend {name!r} cannot start: {error}") from None

    def _here(self) -> Slots:
        """Return the slots of this process."""
        with self._opening.setdefault(os.getpid(), threading.Lock()):
            if os.getpid() not in self._slots:
                if self._closed:
                    raise RuntimeError("the executor is closed")
                self._slots[os.getpid()] = Slots(self.name, self._config)
            return self._slots[os.getpid()]

    def execute(self, jobs: Sequence[Planned]) -> Iterator[Verdict]:
        """Yield the verdicts of ``jobs`` as they come."""
        slots, done, entries = self._here(), SimpleQueue[Verdict](), list[Entry]()
        try:
            for planned in jobs:  # the first ones run while the next are packed
                wall_s = (planned.job.limits or self._limits).wall_s
                entries.append(Entry(planned, wire.pack_job(planned), wall_s, done))
                slots.put(entries[-1])
            for _ in jobs:
                yield done.get()
        finally:
            slots.forget(entries)

    def health(self) -> dict[str, Any]:
        """Return the facts of the slots."""
        return self._here().health()

    def close(self) -> None:
        """End all that this process has started."""
        with self._opening.setdefault(os.getpid(), threading.Lock()):
            slots = None if self._closed else self._slots.get(os.getpid())
            self._closed = True
        if slots is not None:
            slots.close()


def _search_path() -> list[str]:
    """Return this process's `sys.path`, absolute; without a working folder its relative entries name nothing."""
    places = []
    for place in filter(None, sys.path):
        with suppress(FileNotFoundError):
            places.append(str(Path(place).absolute()))
    return places
