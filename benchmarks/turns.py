"""Alternating runs, each in a separate process: the common part of programs that compare systems."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.adapters import is_installed
from benchmarks.measurement import Measurement
from benchmarks.with_torchvision import has_torchvision

__all__ = [
    "Job",
    "RunFailedError",
    "in_turns",
    "last_line_of",
    "leave_out_missing",
    "names",
    "option_parser",
    "parse_options",
    "run_all",
    "run_process",
]

FULL_REPEATS, FULL_SECONDS = 5, 2.5
QUICK_REPEATS, QUICK_SECONDS = 3, 0.5
START_AND_STOP_S = 120
ERROR_LINES, ERROR_CHARS = 6, 300


class Job(NamedTuple):
    """A planned run."""

    repeat: int
    workload: str
    system: str


class RunFailedError(Exception):
    """A run ended without a result."""


def in_turns(workloads: Sequence[str], systems_of: Callable[[str], Sequence[str]], repeats: int) -> Iterator[Job]:
    """Return all runs in their order: the systems of a workload one after the other, rotated by one in each repeat."""
    for repeat in range(repeats):
        for workload in workloads:
            systems = list(systems_of(workload))
            turn = repeat % max(1, len(systems))
            for system in systems[turn:] + systems[:turn]:
                yield Job(repeat, workload, system)


def run_process(program: str, job: Job, *, seconds: float, cwd: Path | None = None) -> Measurement:
    """Make one run in a new process and session; kill remaining processes, so that they do not disturb the next run.

    Args:
        program: the module to run. Its last line of output is the measurement.
        cwd: the folder to run it in, whose modules take precedence.
    """
    arguments = [job.system, job.workload, "--seconds", str(seconds), "--repeat", str(job.repeat)]
    return Measurement.from_json(last_line_of(program, arguments, deadline_s=START_AND_STOP_S + 20 * seconds, cwd=cwd))


def last_line_of(program: str, arguments: Sequence[str], *, deadline_s: float, cwd: Path | None = None) -> str:
    """Run a module in a new process and session, and return the last line of its output.

    Raises:
        RunFailedError: it failed, or did not finish before the deadline.
    """
    command = [sys.executable, "-m", program, *arguments]
    # Files instead of pipes: a worker that outlives its parent would keep a pipe open forever
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=output, stderr=errors, start_new_session=True, cwd=cwd)
        try:
            status = process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise RunFailedError(f"no result after {deadline_s:.0f} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        errors.seek(0)
        if status != 0:
            last_lines = [line[:ERROR_CHARS] for line in errors.read().strip().splitlines()[-ERROR_LINES:]]
            raise RunFailedError("\n".join([f"exit status {status}", *last_lines]))
        return output.read().strip().splitlines()[-1]


def run_all(
    planned: Sequence[Job], run: Callable[[Job], Measurement]
) -> tuple[list[Measurement], dict[tuple[str, str], str]]:
    """Make all runs, and report progress on standard error.

    Returns:
        The measurements, and the error of each system and workload that failed. These get no further runs.
    """
    measurements: list[Measurement] = []
    failures: dict[tuple[str, str], str] = {}
    for number, job in enumerate(planned, start=1):
        if (job.system, job.workload) in failures:
            continue
        print(f"[{number}/{len(planned)}] {job.workload} {job.system} {job.repeat}", file=sys.stderr, flush=True)
        try:
            measurements.append(run(job))
        except RunFailedError as failure:
            failures[job.system, job.workload] = str(failure)
    return measurements, failures


def names(known: Iterable[str]) -> Callable[[str], list[str]]:
    """Return an argparse type for a comma-separated list of ``known`` names."""
    known = list(known)

    def parse(text: str) -> list[str]:
        names = text.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: expected some of {', '.join(known)}")
        return names

    return parse


def leave_out_missing(systems: Sequence[str], needed: Mapping[str, str]) -> list[str]:
    """Return the systems that are installed, and print the modules that the others need."""
    missing = [system for system in systems if not _is_found(needed[system])]
    if missing:
        print(f"Not installed: {', '.join(dict.fromkeys(needed[system] for system in missing))}", end="\n\n", flush=True)
    return [system for system in systems if system not in missing]


def _is_found(module: str) -> bool:
    return has_torchvision() if module == "torchvision" else is_installed(module)


def option_parser(prog: str, description: str, *, workloads: Iterable[str], csv: str) -> argparse.ArgumentParser:
    """Return a parser with the options of all programs; use it with `parse_options`."""
    workloads = list(workloads)
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_REPEATS} repeats of {QUICK_SECONDS} s")
    parser.add_argument("--repeats", type=int, help=f"runs of each system and workload ({FULL_REPEATS})")
    parser.add_argument("--seconds", type=float, help=f"length of the timed part of a run ({FULL_SECONDS})")
    parser.add_argument("--workloads", type=names(workloads), default=workloads, metavar="A,B", help=", ".join(workloads))
    parser.add_argument("--csv", type=Path, default=Path(csv), metavar="PATH")
    return parser


def parse_options(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> Any:
    """Parse the options and fill in repeats and seconds."""
    options = parser.parse_args(arguments)
    options.repeats = options.repeats or (QUICK_REPEATS if options.quick else FULL_REPEATS)
    options.seconds = options.seconds or (QUICK_SECONDS if options.quick else FULL_SECONDS)
    return options
