"""Runs the benchmarks: ``python -m benchmarks [--quick] [--limit] [--workloads a,b] [--systems a,b]``.

Each run of a system on a workload is a process of its own (`run_one`). The systems take turns, and who begins changes
from repeat to repeat. The report goes to the terminal and, as Markdown, beside the CSV file; progress goes to standard
error. The exit status is 1 if a run failed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.adapters import SYSTEMS
from benchmarks.measurement import Measurement
from benchmarks.report import environment, full_report, write_csv
from benchmarks.workloads import WORKLOADS

FULL_REPEATS, FULL_SECONDS = 5, 2.5
QUICK_REPEATS, QUICK_SECONDS = 3, 0.5
START_AND_STOP_S = 120
ERROR_LINES, ERROR_CHARS = 6, 300


class Job(NamedTuple):
    """One run to be made."""

    repeat: int
    workload: str
    system: str


class RunFailedError(Exception):
    """A run ended without a result."""


def jobs(workloads: Sequence[str], systems: Sequence[str], repeats: int) -> Iterator[Job]:
    """All runs in their order: the systems of a workload one after the other, rotated by one in each repeat."""
    for repeat in range(repeats):
        for workload in workloads:
            able = [system for system in systems if _can_run(system, workload)]
            turn = repeat % max(1, len(able))
            for system in able[turn:] + able[:turn]:
                yield Job(repeat, workload, system)


def _can_run(system: str, workload: str) -> bool:
    if system == "limit":
        return WORKLOADS[workload].part != "startup"  # the limit has nothing to start
    return SYSTEMS[system].runs(WORKLOADS[workload])


def run_job(job: Job, *, seconds: float) -> Measurement:
    """Make one run in a new process and session; what is left of it afterwards is killed, not to disturb the next."""
    command = [sys.executable, "-m", "benchmarks.run_one", job.system, job.workload]
    command += ["--seconds", str(seconds), "--repeat", str(job.repeat)]
    # Files instead of pipes: a worker that outlives its parent would keep a pipe open for ever
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=output, stderr=errors, start_new_session=True)
        try:
            status = process.wait(START_AND_STOP_S + 20 * seconds)
        except subprocess.TimeoutExpired:
            raise RunFailedError(f"no result after {START_AND_STOP_S + 20 * seconds:.0f} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        errors.seek(0)
        if status != 0:
            last_lines = [line[:ERROR_CHARS] for line in errors.read().strip().splitlines()[-ERROR_LINES:]]
            raise RunFailedError("\n".join([f"exit status {status}", *last_lines]))
        return Measurement.from_json(output.read().strip().splitlines()[-1])


def _names(known: Sequence[str]) -> type:
    """The argparse type of a comma-separated list of ``known`` names."""

    def parse(text: str) -> list[str]:
        names = text.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: expected some of {', '.join(known)}")
        return names

    return parse  # type: ignore[return-value]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_REPEATS} repeats of {QUICK_SECONDS} s")
    parser.add_argument("--repeats", type=int, help=f"runs of each system and workload ({FULL_REPEATS})")
    parser.add_argument("--seconds", type=float, help=f"length of the timed part of a run ({FULL_SECONDS})")
    parser.add_argument("--workloads", type=_names(list(WORKLOADS)), default=list(WORKLOADS), metavar="A,B")
    parser.add_argument("--systems", type=_names(list(SYSTEMS)), default=list(SYSTEMS), metavar="A,B")
    parser.add_argument("--limit", action="store_true", help="add the workload's hardware limit")
    parser.add_argument("--csv", type=Path, default=Path("build/benchmarks/results.csv"), metavar="PATH")
    options = parser.parse_args(arguments)
    options.repeats = options.repeats or (QUICK_REPEATS if options.quick else FULL_REPEATS)
    options.seconds = options.seconds or (QUICK_SECONDS if options.quick else FULL_SECONDS)
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything, write the CSV file and the report; returns the exit status."""
    options = _options(arguments)
    systems = [*options.systems, "limit"] if options.limit else options.systems
    environment_text = environment()
    print(environment_text, end="\n\n", flush=True)

    planned = list(jobs(options.workloads, systems, options.repeats))
    measurements: list[Measurement] = []
    failures: dict[tuple[str, str], str] = {}
    for number, job in enumerate(planned, start=1):
        if (job.system, job.workload) in failures:
            continue
        print(f"[{number}/{len(planned)}] {job.workload} {job.system} {job.repeat}", file=sys.stderr, flush=True)
        try:
            measurements.append(run_job(job, seconds=options.seconds))
        except RunFailedError as failure:
            failures[job.system, job.workload] = str(failure)

    write_csv(options.csv, measurements)
    report = full_report(environment_text, measurements)
    options.csv.with_suffix(".md").write_text(report + "\n", encoding="utf-8")
    print(report.partition("```\n\n")[2])
    for (system, workload), error in failures.items():
        print(f"\nFAILED: {system} on {workload}: {error}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
