"""The format of messages between trusted processes.

Frames from the process that runs tests to the judge are sealed with a key that only these two know: tests may write a
program's bytes to a descriptor whose number the program has chosen, also to the one of this channel.  No such bytes are
a sealed frame, nor is a frame that was sent before.
"""

from __future__ import annotations

import marshal
import socket
import struct
from dataclasses import asdict
from hashlib import blake2b
from hmac import compare_digest
from typing import Any

from pipeline_lib.sandbox.inside import messages
from pipeline_lib.sandbox.inside.values import BadValue
from pipeline_lib.sandbox.jobs import Case, Job, Limits, Status, Verdict
from pipeline_lib.sandbox.tests_source import Planned, TestPlan

#: How much a job is to blame if the process of its tests ends without an outcome: enough for a crash; if it ends
#: itself; if it is killed, which it may have done itself, too, with a number that a program returned.
CRASH, ITSELF, KILLED = 6, 3, 1

_READ_BYTES = 1 << 16  # more would be mapped and unmapped for every read


class Link:
    """A connection between two processes that trust each other, which carries tuples.

    Args:
        connection: a socket.
        timeout_s: after which `send` and `receive` raise TimeoutError; None: they wait.
    """

    def __init__(self, connection: socket.socket, timeout_s: float | None = None) -> None:
        self.connection = connection
        connection.settimeout(timeout_s)
        self._buffer = bytearray()

    def send(self, *parts: Any) -> None:
        """Send a tuple of what ``marshal`` can write."""
        self.connection.sendall(pack_value(parts))

    def receive(self) -> tuple[Any, ...] | None:
        """Return the next tuple, or None when the other side is gone."""
        # Of any length: a job with huge tests is that job's fault.
        while (frame := messages.take_frame(self._buffer, _LONGEST)) is None:
            try:
                data = self.connection.recv(_READ_BYTES)
            except ConnectionError:
                return None
            if not data:
                return None
            self._buffer += data
        return tuple(marshal.loads(frame))


def pack_job(planned: Planned) -> bytes:
    """Return a job with its compiled tests, for a process with the same interpreter that trusts this one."""
    job = {name: getattr(planned.job, name) for name in Job.__dataclass_fields__}
    if planned.job.limits is not None:
        job["limits"] = asdict(planned.job.limits)
    plan = tuple(getattr(planned.plan, name) for name in TestPlan.__dataclass_fields__)
    return marshal.dumps((job, plan, planned.prelude, planned.stateless))


def unpack_job(body: bytes) -> Planned:
    """Return the job of `pack_job`."""
    job, plan, prelude, stateless = marshal.loads(body)
    return Planned(job_from_json(job), TestPlan(*plan), prelude, stateless)


def pack_verdict(verdict: Verdict) -> bytes:
    """Return a verdict without the sources of the cases, which the receiver knows, for `unpack_verdict`."""
    value = {name: getattr(verdict, name) for name in Verdict.__dataclass_fields__}
    value["status"] = verdict.status.value
    value["cases"] = [(case.result, case.message) for case in verdict.cases]
    return marshal.dumps(value)


def unpack_verdict(body: bytes, planned: Planned) -> Verdict:
    """Return the verdict of `pack_verdict` on a job."""
    value = marshal.loads(body)
    value["status"] = Status(value["status"])
    sources = planned.plan.sources or [""] * len(value["cases"])
    value["cases"] = tuple(
        Case(index, result, message, sources[index]) for index, (result, message) in enumerate(value["cases"])
    )
    return Verdict(**value)


def job_from_json(value: dict[str, Any]) -> Job:
    """Rebuild a job from what `asdict` returns; raises TypeError or ValueError for other input."""
    value = dict(value)
    limits = value.pop("limits", None)
    return Job(**value, limits=None if limits is None else Limits(**limits))


def verdict_from_json(value: dict[str, Any]) -> Verdict:
    """Rebuild a verdict from what `asdict` returns."""
    value = dict(value)
    value["status"] = Status(value["status"])
    value["cases"] = tuple(Case(**case) for case in value["cases"])
    return Verdict(**value)


KEY_BYTES = 16
_SEAL_BYTES = 16
_MOST_BYTES = 1 << 26
_LONGEST = (1 << 32) - 1  # that four bytes can say


class Broken(ValueError):
    """Bytes that are no frame, or not the next sealed one."""


def pack_value(value: Any) -> bytes:
    """Return an unsealed frame: the length in four bytes, then a value that ``marshal`` can write."""
    return messages.framed(marshal.dumps(value))


def seal(key: bytes, number: int, value: Any) -> bytes:
    """Return the sealed frame ``number`` of a job."""
    data = marshal.dumps(value)
    return messages.framed(_seal(key, number, data) + data)


def take_value(buffer: bytearray) -> bytes | None:
    """Remove the first frame from the received bytes and return it; None if it is not complete.

    Raises:
        Broken: no frame has the length that the bytes say.
    """
    try:
        return messages.take_frame(buffer, _MOST_BYTES)
    except BadValue:
        raise Broken from None


def unseal(key: bytes, number: int, frame: bytes) -> Any:
    """Return the value of the sealed frame ``number``; raises `Broken` for any other bytes."""
    data = frame[_SEAL_BYTES:]
    if not compare_digest(_seal(key, number, data), frame[:_SEAL_BYTES]):
        raise Broken
    return marshal.loads(data)


def _seal(key: bytes, number: int, data: bytes) -> bytes:
    return blake2b(struct.pack("!Q", number) + data, key=key, digest_size=_SEAL_BYTES).digest()
