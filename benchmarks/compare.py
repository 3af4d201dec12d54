"""Compare two commits: ``python -m benchmarks.compare REV1 [REV2] [--quick] [--workloads a,b]``.

Each commit is checked out into a separate folder, together with the current version of these benchmarks. `run_one` measures
both in turn, and `benchmarks.loader.run_one` the workloads of the DataLoader, which have the prefix "loader.". Without REV2,
the second one is the working tree. For each workload, the table has the second figure divided by the first: a ratio within
each repeat, then the median and range of these ratios. On a busy machine, CPU time is more reliable than wall time. The exit
status is 1 if a run failed.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.adapters import SYSTEMS
from benchmarks.loader.workloads import WORKLOADS as LOADER_WORKLOADS
from benchmarks.measurement import Measurement
from benchmarks.report import (
    ALL_CPU,
    FIRST_BATCH,
    MAIN_CPU,
    OUR_SYSTEM,
    RATE,
    Column,
    environment,
    markdown,
    publish,
    spread,
)
from benchmarks.turns import Job, in_turns, option_parser, parse_options, run_all, run_process
from benchmarks.workloads import WORKLOADS

__all__ = ["main", "ratios"]

ROOT = Path(__file__).resolve().parent.parent
BEFORE, AFTER = "before", "after"
#: Prefix of the workloads of the DataLoader.
_LOADER = "loader."
COLUMNS = (RATE, MAIN_CPU, ALL_CPU, FIRST_BATCH)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure both, and write the CSV file and the report; return the exit status."""
    options = parse_options(_parser(), arguments)
    with checked_out(options.before) as before, checked_out(options.after) as after:
        measure = functools.partial(_run, {BEFORE: before, AFTER: after}, seconds=options.seconds)
        planned = list(in_turns(options.workloads, lambda _: [BEFORE, AFTER], options.repeats))
        measurements, failures = run_all(planned, measure)
    text = f"{environment()}\n{'before':<20} {options.before}\n{'after':<20} {options.after or 'the working tree'}"
    print(text, end="\n\n")
    return publish(options.csv, text, ratios(measurements), measurements, failures)


def _parser() -> argparse.ArgumentParser:
    ours = [name for name, workload in WORKLOADS.items() if SYSTEMS[OUR_SYSTEM].runs(workload)]
    ours += [_LOADER + name for name, workload in LOADER_WORKLOADS.items() if workload.part == "steady"]
    description = (__doc__ or "").splitlines()[0]
    parser = option_parser("python -m benchmarks.compare", description, workloads=ours, csv="build/benchmarks/compare.csv")
    parser.add_argument("before", metavar="REV1", help="a commit")
    parser.add_argument("after", metavar="REV2", nargs="?", help="second commit; default: the working tree")
    return parser


@contextmanager
def checked_out(revision: str | None) -> Iterator[Path]:
    """Return a folder with the library of a commit and the current benchmarks; for None, the working tree's folder."""
    if revision is None:
        yield ROOT
        return
    with tempfile.TemporaryDirectory(prefix="dali_like_compare_") as folder:
        place = Path(folder) / "tree"
        _git("worktree", "add", "--quiet", "--detach", str(place), revision)
        try:
            shutil.rmtree(place / "benchmarks", ignore_errors=True)
            shutil.copytree(ROOT / "benchmarks", place / "benchmarks", ignore=shutil.ignore_patterns("__pycache__"))
            yield place
        finally:
            _git("worktree", "remove", "--force", str(place))


def _git(*arguments: str) -> None:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"git {' '.join(arguments)}: {done.stderr.strip()}")


def _run(places: Mapping[str, Path], job: Job, *, seconds: float) -> Measurement:
    workload = job.workload.removeprefix(_LOADER)
    program = "benchmarks.run_one" if workload == job.workload else "benchmarks.loader.run_one"
    ours = job._replace(system=OUR_SYSTEM, workload=workload)
    measurement = run_process(program, ours, seconds=seconds, cwd=places[job.system])
    return dataclasses.replace(measurement, system=job.system, workload=job.workload)


def ratios(measurements: Sequence[Measurement]) -> str:
    """Return the second figures divided by the first, in Markdown."""
    workloads = list(dict.fromkeys(each.workload for each in measurements))
    rows = [[workload, *(spread(_of_pairs(measurements, workload, column)) for column in COLUMNS)] for workload in workloads]
    return markdown(["after / before", *(column.heading for column in COLUMNS)], rows)


def _of_pairs(measurements: Sequence[Measurement], workload: str, column: Column) -> list[float | None]:
    """Return the ratio within each repeat that has both figures."""
    found = {(each.system, each.repeat): column.value(each) for each in measurements if each.workload == workload}
    repeats = sorted({repeat for _, repeat in found})
    pairs = [(found.get((BEFORE, repeat)), found.get((AFTER, repeat))) for repeat in repeats]
    return [after / before for before, after in pairs if before and after]


if __name__ == "__main__":
    sys.exit(main())
