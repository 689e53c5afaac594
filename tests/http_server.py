"""A real HTTP server on this machine whose answers a test decides."""

import contextlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Reply:
    """What a request is answered with."""

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def json(value: Any, status: int = 200) -> "Reply":
        return Reply(status, json.dumps(value).encode())


class HttpServer:
    """Answers in threads, as soon as it is made; a subclass says what."""

    def __init__(self) -> None:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(outer.get(self.path))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._send(outer.post(self.path, body, self.headers.get("Authorization", "")))

            def _send(self, reply: Reply) -> None:
                self.send_response(reply.status)
                for name, value in {**reply.headers, "Content-Length": str(len(reply.body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                # Who no longer waits gets nothing.  A traceback would disturb a test that parses a program meanwhile:
                # Python before 3.11.8 cannot parse in two threads ("AST constructor recursion depth mismatch").
                with contextlib.suppress(ConnectionError):
                    self.wfile.write(reply.body)

            def log_message(self, *_: object) -> None:
                return

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def get(self, path: str) -> "Reply":
        return Reply(404)

    def post(self, path: str, body: dict[str, Any], authorisation: str) -> "Reply":
        return Reply(404)

    def close(self) -> None:
        if self._thread.is_alive():
            self._http.shutdown()
            self._http.server_close()
            self._thread.join()
