"""Tests of ``dali-like view``, and of the site, in a browser. ``make browser`` runs them; ``make test`` does not.

They require Chromium, for example Debian's package ``chromium``. DALI_LIKE_BROWSER names another Chromium-based program.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import http.server
import itertools
import json
import os
import select
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dali_like.monitor.show.server import PageServer
from tests.conftest import wait_until

_BROWSERS = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome", "google-chrome-stable")
_DEADLINE_S = 120
_IS_DRAWN = """
document.body?.dataset.state === "drawn" || document.getElementById("about")?.className === "failed"
"""

Serve = Callable[[Mapping[str, Any]], PageServer]


class _PageLeftError(Exception):
    """The browser went on to another page before it answered."""


class Browser:
    """Chromium without a window. It takes commands of the DevTools protocol from file descriptor 3, and answers on 4.

    The protocol: https://chromedevtools.github.io/devtools-protocol/. Messages end with a zero byte.

    Args:
        program: path of the browser.
        folder: for its profile.
    """

    def __init__(self, program: str, folder: Path) -> None:
        theirs_in, self._write = os.pipe()
        self._read, theirs_out = os.pipe()
        command = [
            program,
            "--headless",
            "--no-sandbox",  # the sandbox needs rights that containers rarely have
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--hide-scrollbars",
            "--remote-debugging-pipe",
            f"--user-data-dir={folder}",
        ]
        redirections = f"exec 3<&{theirs_in} 4>&{theirs_out}"
        self._process = subprocess.Popen(
            ["bash", "-c", f'{redirections}; exec "$@"', "bash", *command],
            pass_fds=(theirs_in, theirs_out),
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._answers = os.fdopen(self._read, "rb")
        self._numbers = itertools.count(1)
        self._rest = b""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def call(self, method: str, **params: Any) -> Any:
        """Call a method of the protocol, and return its result."""
        number = next(self._numbers)
        session = {"sessionId": self._session} if hasattr(self, "_session") else {}
        message = {"id": number, "method": method, "params": params, **session}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = json.loads(self._next_answer())
            if answer.get("id") == number:
                if "navigated" in answer.get("error", {}).get("message", ""):
                    raise _PageLeftError
                assert "result" in answer, answer
                return answer["result"]

    def _next_answer(self) -> bytes:
        while b"\0" not in self._rest:
            assert select.select([self._answers], [], [], _DEADLINE_S)[0], "the browser does not answer"
            more = os.read(self._answers.fileno(), 1 << 16)
            assert more, "the browser has ended"
            self._rest += more
        answer, _, self._rest = self._rest.partition(b"\0")
        return answer

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript, in the page; None if the page was left meanwhile."""
        try:
            found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        except _PageLeftError:
            return None
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def imported(self, expression: str) -> Any:
        """Return the value of an expression with the functions of parts.js, in the page."""
        code = f"import('./parts.js').then(({{ticks, rounded, milliseconds}}) => {expression})"
        found = self.call("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def open(self, url: str, width: int = 1180, height: int = 1000, *, dark: bool = False) -> None:
        """Open a page, and wait until it is drawn, or shows an error."""
        self._emulate(width, height, dark=dark)
        self.call("Page.navigate", url="about:blank")  # a change of the fragment alone would not load the page again
        self.call("Page.navigate", url=url)
        wait_until(lambda: self.evaluate(_IS_DRAWN), "the page to be drawn")

    def visit(self, url: str, width: int = 1280, *, dark: bool = False, height: int = 1000) -> None:
        """Open a page that is complete when it has been loaded."""
        self._emulate(width, height, dark=dark)
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)
        loaded = "document.readyState === 'complete' && location.href !== 'about:blank'"
        wait_until(lambda: self.evaluate(loaded), "the page to be loaded")

    def _emulate(self, width: int, height: int, *, dark: bool) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def dom(self, url: str) -> str:
        """Return the HTML of a page after it has been drawn."""
        self.open(url)
        return self.html

    @property
    def html(self) -> str:
        """The HTML of the open page."""
        return str(self.evaluate("document.documentElement.outerHTML"))

    def screenshot(self, path: Path) -> None:
        """Save a picture of the open page, in the format that the name ends with."""
        kind: dict[str, Any] = {"format": "jpeg", "quality": 85} if path.suffix == ".jpg" else {"format": "png"}
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=True, **kind)
        path.write_bytes(base64.b64decode(picture["data"]))

    def close(self) -> None:
        """End the browser."""
        self._process.kill()
        self._process.wait()
        self._answers.close()
        os.close(self._write)


class _QuietHandler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the files of a folder, and return the address."""
    handler = functools.partial(_QuietHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    """Start a browser, or skip the test if none is installed."""
    program = os.environ.get("DALI_LIKE_BROWSER") or next(filter(None, map(shutil.which, _BROWSERS)), None)
    if program is None:
        pytest.skip(f"there is no browser: none of {', '.join(_BROWSERS)} is installed")
    started = Browser(program, tmp_path / "profile")
    yield started
    started.close()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """``serve(data)``: serve the page with some data."""
    running: list[tuple[PageServer, threading.Thread]] = []

    def begin(data: Mapping[str, Any]) -> PageServer:
        server = PageServer(data)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        running.append((server, thread))
        return server

    yield begin
    for server, thread in running:
        server.shutdown()
        server.server_close()
        thread.join()
