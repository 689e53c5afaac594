"""The broker's end of the connection to its client; it never blocks on the client."""

from __future__ import annotations

import selectors
import socket

from pipeline_lib.sandbox import wire


class Client:
    """Receives frames from the client and sends it others.

    Attributes:
        outgoing: bytes that the client has not taken yet.
    """

    def __init__(self, connection: socket.socket, selector: selectors.BaseSelector) -> None:
        self.outgoing = bytearray()
        self._connection = connection
        self._selector = selector
        self._frames = wire.Frames()
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ, None)

    def receive(self) -> list[tuple[wire.Head, bytes]] | None:
        """Return the frames that have arrived, None if the client has disconnected."""
        try:
            data = self._connection.recv(wire.READ_BYTES)
        except BlockingIOError:
            return []
        except ConnectionError:
            return None
        return self._frames.feed(data) if data else None

    def send(self, head: wire.Head, body: bytes = b"") -> None:
        """Queue a frame for the client; `flush` sends it."""
        self.outgoing += wire.pack(head, body)

    def flush(self) -> None:
        """Send as much as the client takes now, and have the selector report when it takes more."""
        try:
            while self.outgoing:
                sent = self._connection.send(self.outgoing)
                del self.outgoing[:sent]
        except BlockingIOError:
            pass
        except ConnectionError:
            self.outgoing.clear()
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.outgoing else 0)
        self._selector.modify(self._connection, events, None)
