"""Tables and CSV: medians over the repeats with minimum and maximum, ratios, and goals.

A ratio is computed within each repeat, whose runs are close in time, and the table shows the median of these ratios. A
machine that slows down between two repeats then affects neither ratio.
"""

from __future__ import annotations

import csv
import importlib.metadata
import os
import platform
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.adapters import SYSTEMS
from benchmarks.measurement import COLUMNS, Measurement
from benchmarks.plot import charts_of, draw
from benchmarks.workloads import WORKERS, WORKLOADS, Workload

__all__ = [
    "ALL_CPU",
    "FIRST_BATCH",
    "MAIN_CPU",
    "RATE",
    "Column",
    "Goal",
    "environment",
    "figure",
    "goal_table",
    "markdown",
    "noise",
    "publish",
    "spread",
    "tables",
]

OUR_SYSTEM = "dali_like"
PACKAGES = ("numpy", "torch", "nvidia-dali-cuda120", "grain", "spdl", "ray", "dali-like")
NOISY_CORES = 0.1
"""More foreign load than this is said under the table."""


@dataclass(frozen=True)
class Column:
    """A figure of `Measurement`, in the unit of the table."""

    heading: str
    value: Callable[[Measurement], float | None]


def figure(heading: str, name: str, factor: float = 1.0) -> Column:
    """Return the column of a field of `Measurement`; ``factor`` converts it to the table's unit."""

    def read(measurement: Measurement) -> float | None:
        value: float | None = getattr(measurement, name)
        return None if value is None else value * factor

    return Column(heading, read)


RATE = figure("samples/s", "samples_per_s")
MAIN_CPU = figure("main CPU us/batch", "main_cpu_us_per_batch")
ALL_CPU = figure("all CPU us/batch", "all_cpu_us_per_batch")
FIRST_BATCH = figure("start + first batch ms", "first_batch_s", 1e3)
_FIRST_RUN = figure("first run() or next() ms", "first_run_s", 1e3)
_MEMORY = (figure("PSS MiB", "pss_bytes", 2**-20), figure("of it after import", "base_pss_bytes", 2**-20))

COLUMNS_OF_PART = {
    "steady": (RATE, figure("MB/s", "bytes_per_s", 1e-6), MAIN_CPU, ALL_CPU, FIRST_BATCH, *_MEMORY),
    "cold": (_FIRST_RUN, FIRST_BATCH, figure("total s", "wall_s"), RATE, MAIN_CPU, ALL_CPU, *_MEMORY),
    "startup": (
        figure("import ms", "import_s", 1e3),
        figure("build() or iter() ms", "start_s", 1e3),
        _FIRST_RUN,
        FIRST_BATCH,
        *_MEMORY,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A goal for one of our figures: a ratio to a peer, or the figure itself if ``peer`` is None."""

    workload: str
    column: Column
    peer: str | None
    peer_workload: str | None = None
    """The peer's, if it is another one than ours."""
    at_least: float | None = None
    at_most: float | None = None

    @property
    def text(self) -> str:
        """The bound, as shown in the table."""
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return "-" if self.at_most is None else f"<= {self.at_most:g}"

    def of(self, system: str) -> str:
        """Numerator and denominator of the ratio."""
        if self.peer is None:
            return system
        return f"{system} / {self.peer}" + (f" ({self.peer_workload})" if self.peer_workload else "")

    def verdict(self, figure: float) -> str:
        """Return whether ``figure`` is within the bound."""
        if self.at_least is None and self.at_most is None:
            return "-"
        reached = figure >= self.at_least if self.at_least is not None else figure <= (self.at_most or 0.0)
        return "yes" if reached else "NO"


GOALS = (
    Goal(workload="tiny", column=RATE, peer="torch", at_least=6),
    Goal(workload="tiny", column=RATE, peer="dali", at_least=15),
    Goal(workload="tiny", column=RATE, peer="grain", at_least=4),
    Goal(workload="image", column=RATE, peer="torch", at_least=9),
    Goal(workload="image", column=RATE, peer="dali", at_least=7),
    Goal(workload="image", column=RATE, peer="grain", at_least=12),
    Goal(workload="image", column=RATE, peer="spdl", at_least=1),
    Goal(workload="image", column=RATE, peer="ray_data"),
    Goal(workload="image", column=ALL_CPU, peer="torch", at_most=0.25),
    Goal(workload="image", column=MAIN_CPU, peer=None, at_most=120),
    Goal(workload="large", column=RATE, peer="torch"),
    Goal(workload="large", column=RATE, peer="spdl", at_least=1),
    Goal(workload="encoded", column=RATE, peer="torch", at_least=12),
    Goal(workload="encoded", column=RATE, peer="torch_packed"),
    Goal(workload="encoded", column=RATE, peer="dali", at_least=5),
    Goal(workload="slow", column=_FIRST_RUN, peer="torch", at_most=0.6),
    Goal(workload="slow", column=_FIRST_RUN, peer="dali", at_most=1),
    Goal(workload="slow", column=FIRST_BATCH, peer="torch"),
    Goal(workload="slow", column=FIRST_BATCH, peer="dali"),
    Goal(workload="startup", column=FIRST_BATCH, peer="torch"),
    Goal(workload="startup", column=FIRST_BATCH, peer="dali"),
)


def environment() -> str:
    """Return the machine and the versions, one line each."""
    lines = [
        ("date", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")),
        ("CPU", _cpu_model()),
        ("cores", f"{len(os.sched_getaffinity(0))} by affinity, {os.cpu_count()} in the machine"),
        ("memory", f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB"),
        ("load before", " ".join(f"{load:.2f}" for load in os.getloadavg()) + " over 1, 5 and 15 minutes"),
        ("kernel", f"{platform.system()} {platform.release()}"),
        ("Python", f"{platform.python_implementation()} {platform.python_version()}"),
        *((package, _version(package)) for package in PACKAGES),
        ("workers", str(WORKERS)),
    ]
    return "\n".join(f"{name:<20} {text}" for name, text in lines)


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed as a package"


def publish(
    csv_path: Path,
    environment_text: str,
    tables_text: str,
    measurements: Sequence[Measurement],
    failures: Mapping[tuple[str, str], str],
) -> int:
    """Write the CSV file, the report and its picture, print the tables and the failures; return the exit status."""
    write_csv(csv_path, measurements)
    csv_path.with_suffix(".md").write_text(f"```\n{environment_text}\n```\n\n{tables_text}\n", encoding="utf-8")
    if charts := charts_of(tables_text):
        csv_path.with_suffix(".svg").write_text(draw("Samples per second", charts), encoding="utf-8")
    print(tables_text)
    for (system, workload), error in failures.items():
        print(f"\nFAILED: {system} on {workload}: {error}")
    return 1 if failures else 0


def write_csv(path: Path, measurements: Iterable[Measurement]) -> None:
    """Write one row per run and one column per field of `Measurement`; missing figures stay empty."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(asdict(measurement) for measurement in measurements)


def tables(measurements: Sequence[Measurement]) -> str:
    """Return a table for each workload, and the table of ratios, in Markdown."""
    parts = []
    for workload in WORKLOADS.values():
        of_workload = [each for each in measurements if each.workload == workload.name]
        if of_workload:
            parts.append(_workload_table(workload, of_workload))
    ratios = goal_table(GOALS, OUR_SYSTEM, measurements)
    if ratios:
        parts.append(f"### {OUR_SYSTEM} and its peers\n\n{ratios}")
    return "\n\n".join(parts)


def _workload_table(workload: Workload, measurements: Sequence[Measurement]) -> str:
    columns = COLUMNS_OF_PART[workload.part]
    limit = _median(RATE.value(each) for each in measurements if each.system == "limit")
    rows = []
    for system in dict.fromkeys(each.system for each in sorted(measurements, key=_place)):
        runs = [each for each in measurements if each.system == system]
        rate = _median(RATE.value(each) for each in runs)
        share = "-" if limit is None or rate is None else f"{100 * rate / limit:.0f} %"
        rows.append([system, *(spread([column.value(run) for run in runs]) for column in columns), share])
    headings = ["system", *(column.heading for column in columns), "of limit"]
    if limit is None:
        headings, rows = headings[:-1], [row[:-1] for row in rows]
    repeats = len({each.repeat for each in measurements})
    title = f"### {workload.name}: batches of {workload.batch_size}, {workload.start_method}, median of {repeats} (range)"
    return "\n\n".join([title, markdown(headings, rows), *noise(measurements)])


def _place(measurement: Measurement) -> int:
    return [*SYSTEMS, "limit"].index(measurement.system)


def noise(measurements: Sequence[Measurement]) -> list[str]:
    """Return a warning about noise, or an empty text."""
    loads = [each.other_load_cores for each in measurements if each.other_load_cores is not None]
    noisy = [load for load in loads if load > NOISY_CORES]
    if not noisy:
        return []
    return [
        f"NOISE: in {len(noisy)} of {len(loads)} runs other programs kept more than {NOISY_CORES} cores busy, "
        f"{max(noisy):.2f} at most."
    ]


def goal_table(goals: Iterable[Goal], system: str, measurements: Sequence[Measurement]) -> str:
    """Return the goals of ``system`` and whether it reaches them; empty if nothing of it was measured."""
    by_run = {(each.workload, each.system, each.repeat): each for each in measurements}
    repeats = sorted({each.repeat for each in measurements})
    rows = []
    for goal in goals:
        figures = []
        for repeat in repeats:
            ours = _value(goal.column, by_run.get((goal.workload, system, repeat)))
            if goal.peer is None:
                theirs: float | None = 1.0
            else:
                theirs = _value(goal.column, by_run.get((goal.peer_workload or goal.workload, goal.peer, repeat)))
            if ours is not None and theirs:
                figures.append(ours / theirs)
        if figures:
            verdict = goal.verdict(statistics.median(figures))
            rows.append([goal.workload, goal.column.heading, goal.of(system), spread(figures), goal.text, verdict])
    if not rows:
        return ""
    headings = ["workload", "figure", "of", "median (range)", "to reach", "reached"]
    return markdown(headings, rows)


def _value(column: Column, measurement: Measurement | None) -> float | None:
    return None if measurement is None else column.value(measurement)


def _median(figures: Iterable[float | None]) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return statistics.median(known) if known else None


def spread(figures: Sequence[float | None]) -> str:
    """Format median and range, like ``1,234 (1,200..1,250)``."""
    known = [figure for figure in figures if figure is not None]
    if not known:
        return "-"
    median = statistics.median(known)
    digits = 0 if median >= 100 else 1 if median >= 10 else 2
    if len(known) == 1:
        return f"{median:,.{digits}f}"
    return f"{median:,.{digits}f} ({min(known):,.{digits}f}..{max(known):,.{digits}f})"


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table with columns that are also aligned as plain text."""
    widths = [max(len(row[column]) for row in [headings, *rows]) for column in range(len(headings))]

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"

    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([line(headings), rule, *(line(row) for row in rows)])
