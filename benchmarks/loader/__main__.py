"""Runs the benchmarks of DataLoaders: ``python -m benchmarks.loader [--quick] [--workloads a,b] [--systems a,b]``.

Each run of a loader on a workload is a process of its own (`run_one`). The loaders take turns, and who begins changes
from repeat to repeat. A loader is dali_like's that gives tensors, or the one that gives NumPy arrays, or torch's, or any
class with the same arguments, named as ``module:class``. All are compared with torch's. The report goes to the terminal
and, as Markdown, beside the CSV file; progress goes to standard error. The exit status is 1 if a run failed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial

from benchmarks.loader.report import tables
from benchmarks.loader.run_one import SYSTEMS
from benchmarks.loader.workloads import WORKLOADS
from benchmarks.report import environment, publish
from benchmarks.turns import in_turns, option_parser, parse_options, run_all, run_process


def _systems(text: str) -> list[str]:
    systems = text.split(",")
    unknown = [system for system in systems if system not in SYSTEMS and ":" not in system]
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: expected {', '.join(SYSTEMS)}, or module:class")
    return systems


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything, write the CSV file and the report; returns the exit status."""
    parser = option_parser(
        "python -m benchmarks.loader", __doc__.splitlines()[0], workloads=WORKLOADS, csv="build/benchmarks/loader.csv"
    )
    parser.add_argument(
        "--systems",
        type=_systems,
        default=["dali_like", "torch"],
        metavar="A,B",
        help=f"{', '.join(SYSTEMS)}, or module:class (dali_like,torch)",
    )
    options = parse_options(parser, arguments)
    environment_text = environment()
    print(environment_text, end="\n\n", flush=True)

    planned = list(in_turns(options.workloads, lambda _workload: options.systems, options.repeats))
    measurements, failures = run_all(planned, partial(run_process, "benchmarks.loader.run_one", seconds=options.seconds))
    return publish(options.csv, environment_text, tables(measurements), measurements, failures)


if __name__ == "__main__":
    sys.exit(main())
