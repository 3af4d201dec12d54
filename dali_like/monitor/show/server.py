"""HTTP server for the page of ``dali-like view``, on this machine only.

It listens on the loopback interface and serves data only to clients with the token. The token is in the fragment of the
URL, which browsers do not send. Requests carry it in a header, so no other site can request data through the user's
browser. Requests for another host name are refused: that defeats DNS rebinding to 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import re
import secrets
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any

from dali_like.errors import DaliLikeError

_LOOPBACK = "127.0.0.1"
#: Time for a request and its answer. Any user of the machine can connect, and each connection takes a thread.
_CONNECTION_S = 10.0
_MOST_CONNECTIONS = 64
_NUMBERS = re.compile(r"^sample=(\d{1,9})$")
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; frame-ancestors 'none'; base-uri 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class PageServer(ThreadingHTTPServer):
    """Serves the page and its data.

    Args:
        data: by name: JSON as bytes, or a function that returns a JSON-serializable object. A request with "?sample=3"
            passes the number to the function.
        port: TCP port; 0 chooses a free one.

    Attributes:
        token: secret that requests for data must carry.
    """

    daemon_threads = True

    def __init__(self, data: Mapping[str, bytes | Callable[..., Any]], port: int = 0) -> None:
        self.token = secrets.token_urlsafe(16)
        self.data = data
        page = resources.files("dali_like.monitor.show").joinpath("page")
        self.files = {file.name: file.read_bytes() for file in page.iterdir()}
        #: The connections that are being answered, and when they are given up.
        self._ends_s: dict[Any, float] = {}
        super().__init__((_LOOPBACK, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin to answer a request, unless there are too many."""
        if len(self._ends_s) >= _MOST_CONNECTIONS:
            self.shutdown_request(request)
            return
        self._ends_s[request] = time.monotonic() + _CONNECTION_S
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self._ends_s.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print a traceback, unless the client is gone, as after closing a browser tab."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def service_actions(self) -> None:
        """Give up connections that take too long. The base class calls this twice a second."""
        now_s = time.monotonic()
        for request, end_s in self._ends_s.copy().items():
            if now_s > end_s:
                with contextlib.suppress(OSError):  # closed meanwhile
                    request.shutdown(socket.SHUT_RDWR)  # its thread reads the end of the data

    @property
    def hosts(self) -> set[str]:
        """Host names that requests may use."""
        return {f"{name}:{self.server_port}" for name in (_LOOPBACK, "localhost")}

    @property
    def url(self) -> str:
        """URL of the page, including the token."""
        return f"http://{_LOOPBACK}:{self.server_port}/#token={self.token}"


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    server_version = "dali_like"
    sys_version = ""

    def do_GET(self) -> None:  # as the base class calls it
        """Answer a request."""
        if self.headers.get("Host") not in self.server.hosts:
            self._refuse("wrong host name: open the URL that dali-like view has printed")
            return
        path, _, query = self.path.partition("?")
        name = path.lstrip("/") or "index.html"
        if (file := self.server.files.get(name)) is not None:
            self._answer(HTTPStatus.OK, file, _TYPES[name.rpartition(".")[2]])
        elif (data := self.server.data.get(name)) is None:
            self._answer(HTTPStatus.NOT_FOUND, b"no such page", "text/plain")
        elif not self._knows_token():
            self._refuse("missing token: open the URL that dali-like view has printed")
        else:
            self._answer_data(data, [int(number) for number in _NUMBERS.findall(query)])

    def _knows_token(self) -> bool:
        given = self.headers.get("Authorization", "").encode("latin-1", "replace")
        return hmac.compare_digest(given, f"Bearer {self.server.token}".encode())

    def _answer_data(self, data: bytes | Callable[..., Any], numbers: Sequence[int]) -> None:
        try:
            content = data if isinstance(data, bytes) else json.dumps(data(*numbers)).encode()
        except DaliLikeError as error:
            self._answer(HTTPStatus.GONE, str(error).encode(), "text/plain")
            return
        self._answer(HTTPStatus.OK, content, "application/json")

    def _refuse(self, why: str) -> None:
        self._answer(HTTPStatus.FORBIDDEN, why.encode(), "text/plain")

    def _answer(self, status: HTTPStatus, content: bytes, kind: str) -> None:
        self.send_response(status)
        about = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(content))}
        for name, value in {**_HEADERS, **about}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the terminal belongs to the user."""
