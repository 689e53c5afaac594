"""Frames from the process that runs tests to the judge, sealed with a key that only these two know.

Tests may write a program's bytes to a descriptor whose number the program has chosen, also to the one of this channel.
No such bytes are a sealed frame, nor is a frame that was sent before.
"""

from __future__ import annotations

import marshal
import struct
from hashlib import blake2b
from hmac import compare_digest
from typing import Any

KEY_BYTES = 16
_SEAL_BYTES = 16
_MOST_BYTES = 1 << 26


class Broken(Exception):
    """Bytes that are not the next sealed frame."""


def pack(value: Any) -> bytes:
    """Return an unsealed frame: the length in four bytes, then a value that ``marshal`` can write."""
    data = marshal.dumps(value)
    return struct.pack("!I", len(data)) + data


def seal(key: bytes, number: int, value: Any) -> bytes:
    """Return the sealed frame ``number`` of a job."""
    data = marshal.dumps(value)
    return struct.pack("!I", _SEAL_BYTES + len(data)) + _seal(key, number, data) + data


def take(buffer: bytearray) -> bytes | None:
    """Remove the first frame from the received bytes and return it; None if it is not complete.

    Raises:
        Broken: no frame has the length that the bytes say.
    """
    if len(buffer) < 4:
        return None
    (length,) = struct.unpack_from("!I", buffer)
    if length > _MOST_BYTES:
        raise Broken
    if len(buffer) < 4 + length:
        return None
    frame = bytes(buffer[4 : 4 + length])
    del buffer[: 4 + length]
    return frame


def unseal(key: bytes, number: int, frame: bytes) -> Any:
    """Return the value of the sealed frame ``number``; raises `Broken` for any other bytes."""
    data = frame[_SEAL_BYTES:]
    if not compare_digest(_seal(key, number, data), frame[:_SEAL_BYTES]):
        raise Broken
    return marshal.loads(data)


def _seal(key: bytes, number: int, data: bytes) -> bytes:
    return blake2b(struct.pack("!Q", number) + data, key=key, digest_size=_SEAL_BYTES).digest()
