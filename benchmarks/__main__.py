"""Run the benchmarks: ``python -m benchmarks [--quick] [--limit] [--workloads a,b] [--systems a,b]``.

Each run of a system on a workload is a separate process (`run_one`). The systems take turns, and their order rotates between
repeats. The report goes to the terminal and, as Markdown with a picture, next to the CSV file; progress goes to standard
error. The exit status is 1 if a run failed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks.adapters import SYSTEMS
from benchmarks.report import environment, publish, tables
from benchmarks.turns import Job, in_turns, names, option_parser, parse_options, run_all, run_process
from benchmarks.workloads import WORKLOADS


def jobs(workloads: Sequence[str], systems: Sequence[str], repeats: int) -> Iterator[Job]:
    """Return all runs in their order, without systems that do not support a workload."""
    return in_turns(workloads, lambda workload: [system for system in systems if _can_run(system, workload)], repeats)


def _can_run(system: str, workload: str) -> bool:
    if system == "limit":
        return WORKLOADS[workload].part != "startup"  # the limit does not start a loader
    return SYSTEMS[system].runs(WORKLOADS[workload])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything, and write the CSV file and the report; return the exit status."""
    parser = option_parser(
        "python -m benchmarks", __doc__.splitlines()[0], workloads=WORKLOADS, csv="build/benchmarks/results.csv"
    )
    parser.add_argument("--systems", type=names(SYSTEMS), default=list(SYSTEMS), metavar="A,B", help=", ".join(SYSTEMS))
    parser.add_argument("--limit", action="store_true", help="also measure the workload's hardware limit")
    options = parse_options(parser, arguments)
    systems = [*options.systems, "limit"] if options.limit else options.systems
    environment_text = environment()
    print(environment_text, end="\n\n", flush=True)

    absent = [name for name in systems if name in SYSTEMS and SYSTEMS[name].missing]
    present = [name for name in systems if name not in absent]
    planned = list(jobs(options.workloads, present, options.repeats))
    measurements, failures = run_all(planned, partial(run_process, "benchmarks.run_one", seconds=options.seconds))

    left_out = [f"Not measured, since not installed: {', '.join(absent)}."] if absent else []
    text = "\n\n".join([tables(measurements), *left_out])
    return publish(options.csv, environment_text, text, measurements, failures)


if __name__ == "__main__":
    sys.exit(main())
