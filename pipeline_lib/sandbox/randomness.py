"""Random numbers of a job: the same in every run, in two sequences that reveal nothing about each other.

Promises: the job alone determines the random numbers of the tests, including numpy's, whenever it is imported; a
program cannot derive them from anything in its own process.  Does not promise: protection against a program that
contains the source of the tests and the job's seed, because it can compute the numbers; if that matters, give jobs a
secret seed.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType

from pipeline_lib.sandbox.jobs import Job

_NUMPY = "numpy.random"


def seed_of_program(job: Job) -> int:
    """Return the seed of a job's program, 64 bits, from which the job's own seed cannot be recovered."""
    return _digest(b"program", str(job.seed))


def seed_of_tests(job: Job) -> int:
    """Return the seed of a job's tests, 64 bits."""
    return _digest(b"tests", str(job.seed), job.tests, job.entry_point, job.prelude, job.code)


def _digest(person: bytes, *parts: str) -> int:
    lengths = ",".join([str(len(part)) for part in parts])
    data = f"{lengths}:{''.join(parts)}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8, person=person).digest(), "big")


def seed_tests(job: Job) -> None:
    """Seed this process for the tests of a job: the standard library, and numpy now or when it is imported."""
    number = seed_of_tests(job)
    random.seed(number)
    _SeedNumpy.number = number % (1 << 32)
    numpy = sys.modules.get(_NUMPY)
    if numpy is not None:
        numpy.seed(_SeedNumpy.number)
    elif _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


class _SeedNumpy(SourceFileLoader):
    """Loads ``numpy.random`` and seeds it; it would otherwise take its seed from the operating system."""

    number = 0

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        module.seed(self.number)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _NUMPY:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _SeedNumpy(fullname, spec.origin)
        return spec


_FINDER = _Finder()
