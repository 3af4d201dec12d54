"""An HTTP server on loopback that serves files, parts of them and lists of them, and fails on request.

It may stand before another server, whose answers it then passes on.
"""

from __future__ import annotations

import http.client
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["HttpStore", "http_store"]


class HttpStore:
    """The files of the server, and its faults.

    Attributes:
        url: where it is.
        files: their contents, by name.
        faults: of the next requests, one each: a status, or "reset", "truncate", "hang", "whole".
        upstream: the port of the server that answers the others, on this machine.
        requests: the names of the files that have been asked for.
        sent_bytes: of files and of parts of them.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.files: dict[str, bytes] = {}
        self.faults: deque[int | str] = deque()
        self.upstream: int | None = None
        self.requests: list[str] = []
        self.sent_bytes = 0
        self.released = threading.Event()
        self.connections: set[socket.socket] = set()

    def hang_up(self) -> None:
        """Close the connections that clients keep open."""
        for connection in list(self.connections):
            with suppress(OSError):  # it is closed already
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: HttpStore

    def do_GET(self) -> None:
        name = self.path.lstrip("/")
        self.store.requests.append(name)
        fault = self.store.faults.popleft() if self.store.faults else 200
        if isinstance(fault, int) and fault != 200:
            self._answer(fault, b"no")
        elif fault == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()
        elif fault == "hang":
            self.close_connection = True
            self.store.released.wait()
        elif self.store.upstream is not None:
            self._pass_on(self.store.upstream, cut=fault == "truncate")
        elif not name:
            self._answer(200, "".join(f'<a href="{file}">{file}</a>' for file in self.store.files).encode(), "text/html")
        elif name not in self.store.files:
            self._answer(404, b"no such file")
        else:
            self._serve(self.store.files[name], fault)

    def do_HEAD(self) -> None:
        self.do_GET()

    def _pass_on(self, port: int, cut: bool) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request(self.command, self.path, headers=dict(self.headers.items()))
        answer = connection.getresponse()
        body = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in {"connection", "transfer-encoding", "server", "date"}:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = cut
        connection.close()

    def _serve(self, data: bytes, fault: int | str) -> None:
        wanted = self.headers.get("Range")
        if fault == "truncate":
            self._answer(200, data, cut=len(data) // 2)
        elif wanted and fault != "whole":
            start, stop = wanted.removeprefix("bytes=").split("-")
            self._answer(206, data[int(start) : int(stop) + 1])
        else:
            self._answer(200, data)

    def _answer(self, status: int, body: bytes, kind: str = "application/octet-stream", cut: int = 0) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.store.sent_bytes += len(body) - cut
            self.wfile.write(body[: len(body) - cut])
        if cut:
            self.wfile.flush()
            self.close_connection = True

    def handle(self) -> None:
        self.store.connections.add(self.connection)
        try:
            super().handle()
        except (OSError, ValueError):  # a connection that we or they have broken off
            self.close_connection = True

    def finish(self) -> None:
        try:
            super().finish()
        except (OSError, ValueError):
            self.close_connection = True
        self.store.connections.discard(self.connection)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # with the default, some of many connections at once wait a second


@contextmanager
def http_store() -> Iterator[HttpStore]:
    """Run such a server."""
    handler: Callable[..., Any] = type("Handler", (_Handler,), {})
    server = _Server(("127.0.0.1", 0), handler)
    server.daemon_threads = False
    store = handler.store = HttpStore(f"http://127.0.0.1:{server.server_port}")  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield store
    finally:
        store.released.set()
        server.shutdown()
        thread.join()
        store.hang_up()
        server.server_close()
