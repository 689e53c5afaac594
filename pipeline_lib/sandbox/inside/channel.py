"""The channel between a program's process and the judge: frames of a length in four bytes and a message."""

from __future__ import annotations

import os
import struct
from typing import Any

from . import messages

CHANNEL = 3


def frame(limit: int, *parts: Any) -> bytes:
    """Return a reply with its length in four bytes before it."""
    return messages.framed(messages.write_reply(limit, *parts))


def ask(data: bytes) -> Any:
    """Send a reply and return the next request."""
    write(data)
    return messages.read_request(receive())


def receive(channel: int = CHANNEL) -> bytes:
    """Return the next frame from the judge; raises EOFError when the channel is closed."""
    _fill(channel, 4)
    end = 4 + struct.unpack_from("!I", _arrived)[0]
    _fill(channel, end)
    with memoryview(_arrived) as view:
        data = bytes(view[4:end])  # a view, so that a large message is in memory twice, not three times
    del _arrived[:end]
    return data


_arrived = bytearray()


def _fill(channel: int, length: int) -> None:
    """Read until the buffer has ``length`` bytes."""
    while len(_arrived) < length:
        part = os.read(channel, 1 << 15)
        if not part:
            raise EOFError
        _arrived.extend(part)


def write(data: bytes, channel: int = CHANNEL) -> None:
    """Write all of ``data`` to the channel."""
    while data:
        data = data[os.write(channel, data) :]
