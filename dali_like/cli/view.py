"""Shows a trace, a profile or running pipelines in the browser.

With a file, shows a trace of `Pipeline.trace` or a profile of `Pipeline.profile`. Without a file, shows the pipelines of
programs that call publish(), or run with DALI_LIKE_PUBLISH=1. Serves the page on this machine only, until Ctrl-C. The URL
contains a token that the page needs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dali_like.errors import ArgumentError

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `dali_like.cli.Command`."""
    parser.add_argument("trace", nargs="?", type=Path, help="file written by Pipeline.trace or Pipeline.profile")
    parser.add_argument("--pid", type=int, help="show only the pipelines of this process")
    parser.add_argument("--name", help="show only pipelines of this name")
    parser.add_argument("--port", type=_port, default=0, help="TCP port of the page; default: any free port")


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port < 1 << 16:
        raise argparse.ArgumentTypeError(f"expected a TCP port, from 0 to 65535, not {text}")
    return port


def run(options: argparse.Namespace) -> int:
    """See `dali_like.cli.Command`."""
    from dali_like.monitor.show.server import PageServer

    data = _data_of(options)
    try:
        server = PageServer(data, options.port)
    except OSError as error:
        raise ArgumentError(f"cannot listen on port {options.port}: {error.strerror}") from error
    with server, contextlib.suppress(KeyboardInterrupt):
        print(f"{server.url}\nopen this URL in a browser on this machine; Ctrl-C stops the server", flush=True)
        server.serve_forever()
    return 0


def _data_of(options: argparse.Namespace) -> Mapping[str, bytes | Callable[..., Any]]:
    """Return the data that the page requests, by name."""
    if options.trace is not None:
        from dali_like.monitor.trace import chrome

        path: Path = options.trace
        if (profile := _profile_in(path)) is not None:
            return {"about.json": lambda: {"kind": "profile", "name": path.name}, "profile.json": profile}
        try:
            chrome.load(path)  # report a bad file before serving it
            content = path.read_bytes()
        except OSError as error:
            raise ArgumentError(f"cannot read {path}: {error.strerror}") from error
        return {"about.json": lambda: {"kind": "trace", "name": path.name}, "trace.json": content}
    from dali_like.monitor.show.watching import Watching

    watching = Watching(options.pid, options.name)
    watching.read()  # report that nothing runs before serving it
    return {"about.json": lambda: {"kind": "live"}, "live.json": watching.read, "pictures.json": watching.pictures}


def _profile_in(path: Path) -> bytes | None:
    """Return the content of a file that has a profile; None if it has another form."""
    from dali_like.monitor.profile.profile import Profile

    try:
        content = path.read_bytes()
        saved = json.loads(content)
    except (OSError, ValueError, RecursionError):
        return None  # reported as that of a trace
    if not isinstance(saved, dict) or "format" not in saved:
        return None
    Profile.from_json(saved)  # report a bad file before serving it
    return content
