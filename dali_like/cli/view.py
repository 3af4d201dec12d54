"""Shows a trace, or a pipeline while it runs, in the browser.

With a file, that trace, which `Pipeline.trace` has written; without, the pipeline of a running program that has called
publish(), or was started with DALI_LIKE_PUBLISH=1. The page is served on this machine alone, until Ctrl-C; its address has a
token, without which it shows nothing.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dali_like.errors import ArgumentError

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `dali_like.cli.Command`."""
    parser.add_argument("trace", nargs="?", type=Path, help="a file that Pipeline.trace has written")
    parser.add_argument("--pid", type=int, help="the program whose pipeline to show, where there are several")
    parser.add_argument("--name", help="the name of the pipeline to show, where there are several")
    parser.add_argument("--port", type=int, default=0, help="where to serve the page; default: any port that is free")


def run(options: argparse.Namespace) -> int:
    """See `dali_like.cli.Command`."""
    from dali_like.monitor.server import PageServer  # noqa: PLC0415

    data = _data_of(options)
    try:
        server = PageServer(data, options.port)
    except OSError as error:
        raise ArgumentError(f"port {options.port} cannot be had: {error.strerror}") from error
    with server, contextlib.suppress(KeyboardInterrupt):
        print(f"{server.url}\nopen this in a browser on this machine; Ctrl-C ends it", flush=True)
        server.serve_forever()
    return 0


def _data_of(options: argparse.Namespace) -> Mapping[str, bytes | Callable[[], Any]]:
    """What the page asks for."""
    if options.trace is not None:
        from dali_like.monitor import chrome  # noqa: PLC0415

        path: Path = options.trace
        try:
            chrome.load(path)  # to say at once what is wrong with it
            content = path.read_bytes()
        except OSError as error:
            raise ArgumentError(f"{path} cannot be read: {error.strerror}") from error
        return {"about.json": lambda: {"kind": "trace", "name": path.name}, "trace.json": content}
    from dali_like.monitor import live  # noqa: PLC0415

    shown = live.choose(options.pid, options.name)
    return {"about.json": lambda: {"kind": "live", "name": shown.name}, "live.json": shown.read}
