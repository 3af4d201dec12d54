"""Run the benchmarks of readers: ``python -m benchmarks.training.readers [--quick] [--workloads a,b] [--systems a,b]``.

Each run of a system on a dataset is a separate process (`run_one`). The systems take turns. Systems that are not installed
are named and left out. The report goes to the terminal and, as Markdown, next to the CSV file; progress goes to standard
error. The exit status is 1 if a run failed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

from benchmarks.measurement import Measurement
from benchmarks.report import (
    ALL_CPU,
    FIRST_BATCH,
    MAIN_CPU,
    RATE,
    Goal,
    environment,
    goal_table,
    markdown,
    noise,
    publish,
    spread,
)
from benchmarks.training.readers.stored import DATASETS
from benchmarks.training.readers.systems import NEEDED, SYSTEMS
from benchmarks.turns import in_turns, leave_out_missing, names, option_parser, parse_options, run_all, run_process

__all__ = ["GOALS", "main", "tables"]

GOALS = tuple(
    Goal(workload=dataset.name, column=RATE, peer=peer, at_least=ratio)
    for dataset in DATASETS.values()
    for peer, ratio in dataset.goals
)
_COLUMNS = (RATE, ALL_CPU, MAIN_CPU, FIRST_BATCH)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything, and write the CSV file and the report; return the exit status."""
    parser = option_parser(
        "python -m benchmarks.training.readers",
        __doc__.splitlines()[0],
        workloads=DATASETS,
        csv="build/benchmarks/readers.csv",
    )
    parser.add_argument("--systems", type=names(SYSTEMS), default=list(SYSTEMS), metavar="A,B", help=", ".join(SYSTEMS))
    options = parse_options(parser, arguments)
    environment_text = environment()
    print(environment_text, end="\n\n", flush=True)

    wanted = leave_out_missing(options.systems, NEEDED)
    for name in options.workloads:
        DATASETS[name].stored()
    planned = list(
        in_turns(
            options.workloads,
            lambda name: [system for system in wanted if system in DATASETS[name].systems],
            options.repeats,
        )
    )
    run = partial(run_process, "benchmarks.training.readers.run_one", seconds=options.seconds)
    measurements, failures = run_all(planned, run)
    return publish(options.csv, environment_text, tables(measurements), measurements, failures)


def tables(measurements: Sequence[Measurement]) -> str:
    """Return a table for each dataset, and one of dali_like's goals."""
    parts = []
    for dataset in DATASETS.values():
        runs = [each for each in measurements if each.workload == dataset.name]
        rows = [
            [system, *(spread([column.value(run) for run in runs if run.system == system]) for column in _COLUMNS)]
            for system in dataset.systems
            if any(run.system == system for run in runs)
        ]
        if rows:
            table = markdown(["system", *(column.heading for column in _COLUMNS)], rows)
            parts += [f"### {dataset.name}: batches of {dataset.batch_size}, median (range)", table, *noise(runs)]
    if goals := goal_table(GOALS, "dali_like", measurements):
        parts.append(f"### Figures to reach\n\n{goals}")
    return "\n\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
