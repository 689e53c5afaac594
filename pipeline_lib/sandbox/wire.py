"""The format of messages between trusted processes.

Frames between the broker and its neighbours have a small head and a body of bytes, which a process that only forwards
it does not read.  Frames from the process that runs tests to the judge are sealed with a key that only these two know:
tests may write a program's bytes to a descriptor whose number the program has chosen, also to the one of this channel.
No such bytes are a sealed frame, nor is a frame that was sent before.
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

Head = dict[str, Any]
READ_BYTES = 1 << 16  # more would be mapped and unmapped for every read


def pack(head: Head, body: bytes = b"") -> bytes:
    """Return a frame for `Frames`."""
    return pack_value((head, body))


class Frames:
    """Collects bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[Head, bytes]]:
        """Add ``data``; return the frames that are now complete; raises ValueError for bytes that are no frames."""
        self._buffer += data
        frames = []
        # Of any length: a job with huge tests is that job's fault, and must not end the broker of all others.
        while (frame := messages.take_frame(self._buffer, _LONGEST)) is not None:
            try:
                head, body = marshal.loads(frame)
            except (EOFError, TypeError) as error:
                raise Broken(f"not a frame: {error}") from None
            if type(head) is not dict or type(body) is not bytes:
                raise Broken("a frame is a dict and bytes")
            frames.append((head, body))
        return frames


class Link:
    """A blocking connection that carries frames."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._frames = Frames()
        self._ready: list[tuple[Head, bytes]] = []

    def send(self, head: Head, body: bytes = b"") -> None:
        """Send one frame."""
        self.connection.sendall(pack(head, body))

    def receive(self) -> tuple[Head, bytes] | None:
        """Return the next frame, or None when the other side is gone."""
        while not self._ready:
            try:
                data = self.connection.recv(READ_BYTES)
            except ConnectionError:
                return None
            if not data:
                return None
            self._ready = self._frames.feed(data)
        return self._ready.pop(0)


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
