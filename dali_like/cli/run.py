"""Runs a program as it is, with this library's loader in the place of PyTorch's.

dali-like run [options] train.py arguments...
dali-like run [options] -m package.train arguments...
dali-like run [options] torchrun --nproc-per-node 4 train.py arguments...

Arguments after the script belong to the program. Every Python process that it starts takes part, but not python -I, -E or
-S. No file is changed. At its end, or on Ctrl-C, a summary appears on stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dali_like.errors import ArgumentError
from dali_like.running.run_settings import RunSettings, startup_folder
from dali_like.running.summary import print_summary

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `dali_like.cli.Command`."""
    add = parser.add_argument
    add("--fast", action="store_true", help="random numbers by sample instead of PyTorch's; workers may become more")
    add("--baseline", action="store_true", help="run PyTorch's own loader, and measure it in the same way")
    add("--compare", action="store_true", help="run both in turns, and compare them; needs --steps")
    add("--steps", type=_positive, default=0, metavar="N", help="end each process after N batches")
    add("--in-place", action="store_true", help="with --compare: run in this folder instead of temporary ones")
    add("--dali", action="store_true", help="import dali_like as nvidia.dali, even if DALI is installed")
    add("--only", action="append", default=[], metavar="FILE", help="replace only loaders made in this file or module")
    add("--skip", action="append", default=[], metavar="FILE", help="do not replace loaders made in this file or module")
    add("--trace", type=Path, metavar="FILE", help="record a trace of all loaders")
    add("--profile", type=Path, metavar="FILE", help="sample the lines of the program in the workers; for dali-like view")
    add("--json-file", type=Path, metavar="FILE", help="write the figures of the summary as JSON")
    add("--html", type=Path, metavar="FILE", help="write summary, reports and trace as one page")
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help="module to run, with its arguments")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="script or command, with its arguments")


def _positive(text: str) -> int:
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"expected a positive number of batches, not {text}")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """See `dali_like.cli.Command`."""
    command = _command_of(options)
    if options.compare:
        from dali_like.cli.run_compare import compare

        return compare(command, options)
    with tempfile.TemporaryDirectory(prefix="dali-like-run-") as folder:
        settings = settings_of(options, folder)
        status = run_program(command, settings)
        records = records_in(folder)
        print_summary(records, settings)
        from dali_like.cli.run_files import merged_profile, merged_trace, page

        if options.json_file is not None:
            options.json_file.write_text(json.dumps({"processes": records}, indent=1), encoding="utf-8")
        if options.trace is not None:
            options.trace.write_text(json.dumps(merged_trace(settings.folder, records)), encoding="utf-8")
        if options.profile is not None:
            profile = merged_profile(settings.folder, records)
            profile.write(options.profile)
            print(f"Profile: {profile}", file=sys.stderr)
        if options.html is not None:
            options.html.write_text(page(records, settings), encoding="utf-8")
    return status


def settings_of(options: argparse.Namespace, folder: str, **changes: Any) -> RunSettings:
    """Return the settings for the processes of a program."""
    return RunSettings(
        **{
            "fast": options.fast,
            "baseline": options.baseline,
            "dali": options.dali,
            "only": tuple(options.only),
            "skip": tuple(options.skip),
            "folder": folder,
            "trace": options.trace is not None or options.html is not None,
            "profile": options.profile is not None,
            "steps": options.steps,
            **changes,
        }
    )


def _command_of(options: argparse.Namespace) -> list[str]:
    """Return the command line of the program.

    Raises:
        ArgumentError: there is no program, it does not exist, or options exclude each other.
    """
    if options.fast and options.baseline:
        raise ArgumentError("--fast is about this library's loader, and --baseline runs PyTorch's: give one of them")
    if options.compare and not options.steps:
        raise ArgumentError("--compare needs --steps N: the number of batches after which each run ends")
    if options.compare and options.baseline:
        raise ArgumentError("--compare runs PyTorch's loader anyway: leave --baseline out")
    if options.module is not None:
        if not options.module:
            raise ArgumentError("-m needs the name of a module")
        return [sys.executable, "-m", *options.module]
    if not options.program:
        raise ArgumentError("which program? dali-like run train.py")
    name, *arguments = options.program
    if name.endswith(".py") or (os.path.isfile(name) and not os.access(name, os.X_OK)):
        if not os.path.exists(name):
            raise ArgumentError(f"there is no file {name}")
        return [sys.executable, os.path.abspath(name) if options.compare else name, *arguments]
    if (found := shutil.which(name)) is None:
        raise ArgumentError(f"there is no file or command {name}")
    return [found, *arguments]


def run_program(command: Sequence[str], settings: RunSettings, folder: str | None = None) -> int:
    """Run a program and wait for its end. The terminal sends Ctrl-C to the program, too, so this process only waits.

    Args:
        folder: the current folder of the program; None: this one.

    Returns:
        Its exit status, as shells say it.
    """
    process: subprocess.Popen[bytes] | None = None

    def forward(number: int, _: Any) -> None:
        if process is not None:
            process.send_signal(number)

    with _handlers({signal.SIGINT: lambda *_: None, signal.SIGTERM: forward}):
        process = subprocess.Popen(command, env=environment_of(settings), cwd=folder)
        status = process.wait()
    return 128 - status if status < 0 else status


@contextlib.contextmanager
def _handlers(handlers: Mapping[int, Any]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def environment_of(settings: RunSettings) -> dict[str, str]:
    """Return the environment of a program whose processes take part."""
    paths = [startup_folder(), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "DALI_LIKE_RUN": settings.as_text()}


def records_in(folder: str) -> list[dict[str, Any]]:
    """Return the records that the processes of a program have written."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(folder).glob("*.json"))]
