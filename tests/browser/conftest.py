"""Tests of the page of ``dali-like view`` in a browser. ``make browser`` runs them; ``make test`` does not.

They require Chromium, for example Debian's package ``chromium``. DALI_LIKE_BROWSER names another Chromium-based program.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dali_like.monitor.server import PageServer

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_DEADLINE_S = 120
#: In the page's virtual time, which runs ahead while the page only waits for timers.
_BUDGET_MS = 60_000

Serve = Callable[[Mapping[str, Any]], PageServer]


class Browser:
    """Chromium without a window.

    Args:
        program: path of the browser.
        folder: for its profile.
    """

    def __init__(self, program: str, folder: Path) -> None:
        self._command = [
            program,
            "--headless",
            "--no-sandbox",  # the sandbox needs rights that containers rarely have
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--hide-scrollbars",
            f"--user-data-dir={folder}",
            f"--virtual-time-budget={_BUDGET_MS}",
        ]

    def dom(self, url: str) -> str:
        """Return the HTML of the page after it has been drawn."""
        return self._run("--dump-dom", url)

    def screenshot(self, url: str, path: Path, width: int, height: int) -> None:
        """Save a picture of the page."""
        self._run(f"--screenshot={path}", f"--window-size={width},{height}", url)

    def _run(self, *arguments: str) -> str:
        done = subprocess.run([*self._command, *arguments], capture_output=True, text=True, timeout=_DEADLINE_S, check=True)
        return done.stdout


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    """Start a browser, or skip the test if none is installed."""
    program = os.environ.get("DALI_LIKE_BROWSER") or next(filter(None, map(shutil.which, _BROWSERS)), None)
    if program is None:
        pytest.skip(f"there is no browser: none of {', '.join(_BROWSERS)} is installed")
    return Browser(program, tmp_path / "profile")


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
