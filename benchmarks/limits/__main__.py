"""Measure the distance to hardware limits: ``python -m benchmarks.limits [--quick] [--groups a,b]``.

Each group of figures is measured in a separate process, and the groups take turns. The table goes to the terminal and, as
Markdown, next to the CSV file. The exit status is 1 if a run failed; a missed bound is not a failure.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.limits.rows import GROUPS, all_rows
from benchmarks.report import environment, markdown, spread
from benchmarks.turns import START_AND_STOP_S, RunFailedError, last_line_of, names

Measured = dict[str, list[tuple[float, float]]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write the table; return the exit status."""
    options = _parser().parse_args(arguments)
    repeats = options.repeats or (3 if options.quick else 5)
    seconds = options.seconds or (0.5 if options.quick else 2.5)
    text = environment()
    print(text, end="\n\n", flush=True)
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        # Compile the package once, as installation does, and not at each start of an interpreter.
        os.environ["PYTHONPYCACHEPREFIX"] = str(options.csv.parent.absolute() / "pycache")
    measured, failures = _measure(options.groups, repeats, seconds)
    result = table(options.groups, measured)
    options.csv.parent.mkdir(parents=True, exist_ok=True)
    _write_csv(options.csv, measured)
    options.csv.with_suffix(".md").write_text(f"```\n{text}\n```\n\n{result}\n", encoding="utf-8")
    print(result)
    for group, error in failures.items():
        print(f"\nFAILED: {group}: {error}")
    return 1 if failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="measure 3 repeats of 0.5 s")
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--seconds", type=float, help="approximate time of each group, in seconds")
    parser.add_argument("--groups", type=names(GROUPS), default=list(GROUPS), metavar="A,B", help=", ".join(GROUPS))
    parser.add_argument("--csv", type=Path, default=Path("build/benchmarks/limits.csv"), metavar="PATH")
    return parser


def _measure(groups: Sequence[str], repeats: int, seconds: float) -> tuple[Measured, dict[str, str]]:
    measured: Measured = {}
    failures: dict[str, str] = {}
    for repeat in range(repeats):
        for group in groups:
            if group in failures:
                continue
            print(f"[{repeat + 1}/{repeats}] {group}", file=sys.stderr, flush=True)
            try:
                line = last_line_of(
                    "benchmarks.limits.run_one", [group, str(seconds)], deadline_s=START_AND_STOP_S + 20 * seconds
                )
            except RunFailedError as failure:
                failures[group] = str(failure)
                continue
            for name, (ours, limit) in json.loads(line).items():
                measured.setdefault(name, []).append((ours, limit))
    return measured, failures


def table(groups: Sequence[str], measured: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Return the figures, their limits, and the verdicts, in Markdown."""
    lines = []
    for row in all_rows(groups):
        pairs = measured.get(row.name)
        if not pairs:
            continue
        judged = [row.figure(ours, limit) for ours, limit in pairs]
        lines.append(
            [
                row.name,
                f"{spread([ours for ours, _ in pairs])} {row.unit}",
                "-" if row.limit == "-" else f"{spread([limit for _, limit in pairs])} {row.unit}: {row.limit}",
                f"{spread(judged)} {row.judged}",
                row.bound,
                row.judge(statistics.median(judged)),
            ]
        )
    return markdown(["figure", "ours", "limit", "judged", "to reach", "reached"], lines)


def _write_csv(path: Path, measured: Measured) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["figure", "repeat", "ours", "limit"])
        for name, pairs in measured.items():
            writer.writerows((name, repeat, *pair) for repeat, pair in enumerate(pairs))


if __name__ == "__main__":
    sys.exit(main())
