"""Run the benchmarks of training pipelines: ``python -m benchmarks.training [--quick] [--workloads a,b] [--systems a,b]``.

Each run of a system on a workload is a separate process (`run_one`). The systems take turns, and their order rotates between
repeats. Systems that are not installed are named and left out. The report goes to the terminal and, as Markdown, next to the
CSV file; progress goes to standard error. The exit status is 1 if a run failed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

from benchmarks.report import environment, publish
from benchmarks.training.report import tables
from benchmarks.training.systems import NEEDED, SYSTEMS
from benchmarks.training.workloads import WORKLOADS
from benchmarks.turns import in_turns, leave_out_missing, names, option_parser, parse_options, run_all, run_process


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything, and write the CSV file and the report; return the exit status."""
    parser = option_parser(
        "python -m benchmarks.training", __doc__.splitlines()[0], workloads=WORKLOADS, csv="build/benchmarks/training.csv"
    )
    parser.add_argument("--systems", type=names(SYSTEMS), default=list(SYSTEMS), metavar="A,B", help=", ".join(SYSTEMS))
    options = parse_options(parser, arguments)
    environment_text = environment()
    print(environment_text, end="\n\n", flush=True)

    wanted = leave_out_missing(options.systems, NEEDED)
    for workload in options.workloads:
        WORKLOADS[workload].source()  # makes the files
    planned = list(
        in_turns(
            options.workloads,
            lambda workload: [system for system in wanted if system in WORKLOADS[workload].systems],
            options.repeats,
        )
    )
    measurements, failures = run_all(planned, partial(run_process, "benchmarks.training.run_one", seconds=options.seconds))
    return publish(options.csv, environment_text, tables(measurements), measurements, failures)


if __name__ == "__main__":
    sys.exit(main())
