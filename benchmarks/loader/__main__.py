"""Run the benchmarks of DataLoaders: ``python -m benchmarks.loader [--quick] [--workloads a,b] [--systems a,b]``.

Each run of a loader on a workload is a separate process (`run_one`). The loaders take turns, and their order rotates between
repeats. A loader is dali_like's with tensors, dali_like's with NumPy arrays, torch's, or any class with the same arguments,
given as ``module:class``. All are compared with torch's. The report goes to the terminal and, as Markdown, next to the CSV
file; progress goes to standard error. The exit status is 1 if a run failed.
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
    """Run everything, and write the CSV file and the report; return the exit status."""
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
