"""Run the benchmarks of composed datasets: ``python -m benchmarks.composed [--quick] [--workloads a,b] [--systems a,b]``.

Each run of a system on a workload is a separate process (`run_one`). The systems take turns, and their order rotates between
repeats. Without Grain, dali_like is measured alone. The report goes to the terminal and, as Markdown, next to the CSV file;
progress goes to standard error. The exit status is 1 if a run failed.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from benchmarks.composed.systems import SYSTEMS
from benchmarks.composed.workloads import STAGES, WORKLOADS, Workload
from benchmarks.measurement import Measurement
from benchmarks.report import (
    ALL_CPU,
    FIRST_BATCH,
    MAIN_CPU,
    RATE,
    Column,
    Goal,
    environment,
    figure,
    goal_table,
    markdown,
    noise,
    publish,
    spread,
)
from benchmarks.turns import in_turns, names, option_parser, parse_options, run_all, run_process

__all__ = ["GOALS", "SPAWN_GOALS", "main", "tables"]

TOKENS = figure("million tokens/s", "tokens_per_s", 1e-6)
PADDING = figure("padding %", "padding", 1e2)
DEAREST = figure("dearest rank / mean", "dearest_of_mean")
OF_BOUND = figure("dearest rank / lower bound", "dearest_of_bound")
IN_ORDER = figure("in order / mean", "in_order_of_mean")
IMPORT = figure("import ms", "import_s", 1e3)
ADDED = figure("memory added MiB", "added_bytes", 2**-20)

_COLUMNS_OF_PART = {
    "steady": (RATE, TOKENS, PADDING, DEAREST, OF_BOUND, IN_ORDER, MAIN_CPU, ALL_CPU, FIRST_BATCH),
    "first": (IMPORT, FIRST_BATCH),
    "resume": (FIRST_BATCH,),
    "memory": (ADDED, FIRST_BATCH),
}

GOALS = (
    Goal(workload="mixture", column=RATE, peer="grain", at_least=4),
    Goal(workload="packing", column=TOKENS, peer="grain", at_least=3),
    Goal(workload="packing", column=PADDING, peer="grain", at_most=1),
    Goal(workload="packing", column=TOKENS, peer="grain_64", at_least=3),
    Goal(workload="packing", column=PADDING, peer="grain_64", at_most=1),
    Goal(workload="balance", column=DEAREST, peer=None, at_most=1.05),
    Goal(workload="balance", column=OF_BOUND, peer=None, at_most=1.02),
    Goal(workload="windows", column=ALL_CPU, peer="loop", at_most=1.25),
    Goal(workload="start", column=FIRST_BATCH, peer="grain", at_most=0.08),
    Goal(workload="resume", column=FIRST_BATCH, peer="grain", at_most=0.08),
    Goal(workload="memory", column=ADDED, peer="grain", at_most=0.5),
    Goal(workload="memory_packed", column=ADDED, peer="grain", at_most=0.5),
    Goal(workload="stage_filter", column=RATE, peer="dali_like", peer_workload="stage_none", at_least=0.45),
    Goal(workload="stage_flat_map", column=RATE, peer="dali_like", peer_workload="stage_none", at_least=0.5),
)

#: Of spawned workers, whose interpreter has to import this package first.
SPAWN_GOALS = tuple(replace(goal, at_most=0.4) if goal.workload in ("start", "resume") else goal for goal in GOALS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything, and write the CSV file and the report; return the exit status."""
    parser = option_parser(
        "python -m benchmarks.composed", __doc__.splitlines()[0], workloads=WORKLOADS, csv="build/benchmarks/composed.csv"
    )
    parser.add_argument("--systems", type=names(SYSTEMS), default=list(SYSTEMS), metavar="A,B", help=", ".join(SYSTEMS))
    options = parse_options(parser, arguments)
    environment_text = environment()
    print(environment_text, end="\n\n", flush=True)

    wanted = options.systems
    if importlib.util.find_spec("grain") is None:
        print("Not installed: grain", end="\n\n", flush=True)
        wanted = [system for system in wanted if not system.startswith("grain")]
    planned = list(
        in_turns(
            options.workloads,
            lambda name: [system for system in wanted if system in WORKLOADS[name].systems],
            options.repeats,
        )
    )
    measurements, failures = run_all(planned, partial(run_process, "benchmarks.composed.run_one", seconds=options.seconds))
    return publish(options.csv, environment_text, tables(measurements), measurements, failures)


def tables(measurements: Sequence[Measurement]) -> str:
    """Return a table for each workload, and the goals of dali_like with forked and with spawned workers, in Markdown."""
    parts = []
    for workload in WORKLOADS.values():
        runs = [each for each in measurements if each.workload == workload.name]
        if runs and not workload.stage:
            parts += [_heading(workload, runs), _table(workload, runs), *noise(runs)]
    if table := _stage_table(measurements):
        parts.append(table)
    for system in SYSTEMS[:2]:
        if goals := goal_table(SPAWN_GOALS if system.endswith("_spawn") else GOALS, system, measurements):
            parts.append(f"### {system}: figures to reach\n\n{goals}")
    return "\n\n".join(parts)


def _heading(workload: Workload, runs: Sequence[Measurement]) -> str:
    repeats = len({run.repeat for run in runs})
    sources = f"{workload.num_sources} source" + "s" * (workload.num_sources > 1)
    return f"### {workload.name}: {sources}, batches of {workload.batch_size}, median of {repeats} (range)"


def _table(workload: Workload, runs: Sequence[Measurement]) -> str:
    columns = [column for column in _COLUMNS_OF_PART[workload.part] if any(column.value(run) is not None for run in runs)]
    rows = [
        [system, *(spread([column.value(run) for run in runs if run.system == system]) for column in columns)]
        for system in workload.systems
        if any(run.system == system for run in runs)
    ]
    return markdown(["system", *(column.heading for column in columns)], rows)


def _stage_table(measurements: Sequence[Measurement]) -> str:
    """Return the rate and the CPU time of an output behind each stage, and ratios to the stream without one."""
    by_stage: dict[str, dict[int, Measurement]] = {stage: {} for stage in STAGES}
    for run in measurements:
        if (stage := WORKLOADS[run.workload].stage) and run.system == SYSTEMS[0]:
            by_stage[stage][run.repeat] = run
    plain, rows = by_stage["none"], []
    for stage, runs in by_stage.items():
        if runs:
            ratios = [_ratio(RATE, run, plain.get(repeat)) for repeat, run in runs.items()]
            cpu = [_ratio(ALL_CPU, run, plain.get(repeat)) for repeat, run in runs.items()]
            each = [_CPU_PER_OUTPUT.value(run) for run in runs.values()]
            rates = [RATE.value(run) for run in runs.values()]
            rows.append([stage, spread(rates), spread(ratios), spread(each), spread(cpu)])
    if not rows:
        return ""
    headings = ["stage", RATE.heading, "ratio to none", _CPU_PER_OUTPUT.heading, "ratio to none"]
    return f"### Each stage alone, behind shuffled and repeated numbers\n\n{markdown(headings, rows)}"


def _cpu_per_output(run: Measurement) -> float | None:
    return None if run.all_cpu_us_per_batch is None else run.all_cpu_us_per_batch / run.batch_size


_CPU_PER_OUTPUT = Column("all CPU us/output", _cpu_per_output)


def _ratio(column: Column, run: Measurement, plain: Measurement | None) -> float | None:
    ours, theirs = column.value(run), None if plain is None else column.value(plain)
    return ours / theirs if ours is not None and theirs else None


if __name__ == "__main__":
    sys.exit(main())
