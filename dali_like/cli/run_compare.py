"""Compares a program with PyTorch's loader and with this library's, in its own figures: ``dali-like run --compare``.

Both run in turns, A B B A, so that other load and warm caches favor neither. Each run ends after the same number of batches.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dali_like.cli.machine_load import busy_cpus, load_text
from dali_like.cli.run import records_in, run_program, settings_of
from dali_like.monitor.measure.text import bytes_text, seconds_text
from dali_like.running.summary import rates_of

__all__ = ["Figures", "compare", "comparison_lines", "figures_of"]

#: Larger files are links in a temporary working folder, and not copies.
_MOST_COPIED_BYTES = 1 << 20
PYTORCH, OURS = "PyTorch", "dali_like"
_TURNS = (PYTORCH, OURS, OURS, PYTORCH)


class Figures(NamedTuple):
    """The measurements of one run, of all its processes.

    Attributes:
        samples_per_s, batches_per_s: of all ranks together, in the loader with most batches.
        waiting: the share of the time in which the loop waited.
        first_batch_s: seconds until the first batch, of the slowest rank.
        memory_bytes: of all processes together, at the end.
        cpu_s: CPU time of all processes for each batch, from the first batch on.
        digests: hashes of the first batches, by rank; "" for batches that cannot be compared.
        batches: number of batches, of all loaders.
    """

    samples_per_s: float
    batches_per_s: float
    waiting: float
    first_batch_s: float
    memory_bytes: float
    cpu_s: float
    digests: dict[str, list[str]]
    batches: int


def compare(command: Sequence[str], options: argparse.Namespace) -> int:
    """Run a program four times, and print the comparison. Return the first exit status that is not 0."""
    found: dict[str, list[Figures]] = {PYTORCH: [], OURS: []}
    busy = busy_cpus()
    for number, which in enumerate(_TURNS, 1):
        print(f"dali-like run: {number} of {len(_TURNS)}, {which}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="dali-like-run-") as folder, _working_folder(options.in_place) as place:
            is_theirs = which == PYTORCH
            changes = {"baseline": is_theirs, "fast": options.fast and not is_theirs, "seeds": True, "trace": False}
            settings = settings_of(options, folder, **changes)
            if status := run_program(command, settings, place):
                print(f"dali-like run: the program has failed with status {status}; no comparison", file=sys.stderr)
                return status
            found[which].append(figures_of(records_in(folder)))
    if disturbed := load_text(busy):
        print(disturbed)
    print("\n".join(comparison_lines(found, options.steps, fast=options.fast)), flush=True)
    if options.json_file is not None:
        values = {which: [run._asdict() for run in runs] for which, runs in found.items()}
        options.json_file.write_text(json.dumps(values, indent=1), encoding="utf-8")
    return 0


def figures_of(records: Sequence[dict[str, Any]]) -> Figures:
    """Return the figures of one run."""
    loaders = [max(record["loaders"], key=lambda loader: loader["batches"]) for record in records if record["loaders"]]
    rates = [rates_of(loader) for loader in loaders]
    return Figures(
        samples_per_s=sum(samples for samples, _, _ in rates),
        batches_per_s=sum(batches for _, batches, _ in rates),
        waiting=sum(waiting for _, _, waiting in rates) / max(len(rates), 1),
        first_batch_s=max((loader["first_batch_s"] for loader in loaders), default=0.0),
        memory_bytes=sum(record["memory_bytes"] for record in records),
        cpu_s=sum(record["cpu_s"] for record in records) / max(sum(record["steps"] for record in records), 1),
        digests={record["rank"]: record["digests"] for record in records if record["loaders"]},
        batches=sum(loader["batches"] for record in records for loader in record["loaders"]),
    )


def comparison_lines(found: dict[str, list[Figures]], steps: int, *, fast: bool) -> Iterator[str]:
    """Yield the lines of the comparison: means of the runs, and their spread in parentheses.

    Args:
        found: by loader, the figures of its runs.
        steps: the number of batches after which each run ended.
        fast: whether this library's random numbers were used.
    """
    theirs, ours = found[PYTORCH], found[OURS]
    if not all(run.batches for run in (*theirs, *ours)):
        yield "No loader was iterated over in at least one of the runs. Does the program use torch.utils.data.DataLoader?"
        return
    yield f"{'':<16}{PYTORCH:>26}{OURS:>26}{'ratio':>8}"
    for name, read, show in _ROWS:
        cells = (_cell([read(run) for run in runs], show) for runs in (theirs, ours))
        (their_text, their_mean), (our_text, our_mean) = cells
        ratio = f"{our_mean / their_mean:.2f}" if their_mean else ""
        yield f"{name:<16}{their_text:>26}{our_text:>26}{ratio:>8}"
    yield _verdict_on_batches(theirs, ours, fast=fast)
    if min(run.batches for run in (*theirs, *ours)) < steps:
        yield f"The program ended by itself before {steps} batches."


_ROWS: tuple[tuple[str, Callable[[Figures], float], Callable[[float], str]], ...] = (
    ("samples/s", lambda run: run.samples_per_s, lambda value: f"{value:,.0f}"),
    ("batches/s", lambda run: run.batches_per_s, lambda value: f"{value:,.1f}"),
    ("waiting", lambda run: run.waiting, lambda value: f"{value:.1%}"),
    ("first batch", lambda run: run.first_batch_s, seconds_text),
    ("memory", lambda run: run.memory_bytes, bytes_text),
    ("CPU per batch", lambda run: run.cpu_s, seconds_text),
)


def _cell(values: list[float], show: Any) -> tuple[str, float]:
    mean = sum(values) / len(values)
    return f"{show(mean)} ({show(min(values))} to {show(max(values))})", mean


def _verdict_on_batches(theirs: list[Figures], ours: list[Figures], *, fast: bool) -> str:
    first, *others = [run.digests for run in theirs]
    if not any(digest for digests in first.values() for digest in digests):
        return "First batches: not compared; they have content that cannot be pickled."
    if any(other != first for other in others):
        return "First batches: not compared; two runs with PyTorch's loader differ, so the program is not deterministic."
    if all(run.digests == first for run in ours):
        return "First batches: equal to the bit."
    if fast:
        return "First batches: different, as --fast draws other random numbers."
    return "First batches: DIFFERENT, although two runs with PyTorch's loader are equal. Please report this."


@contextlib.contextmanager
def _working_folder(in_place: bool) -> Iterator[str | None]:
    """Make a temporary working folder like this one: with copies of small files, and links to the others and to folders.

    It stands beside this one if that is allowed, so that paths such as ``../data`` lead to the same files.
    """
    if in_place:
        yield None
        return
    parent = os.path.dirname(os.getcwd())
    beside = parent if os.access(parent, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix=".dali-like-compare-", dir=beside) as folder:
        for entry in os.scandir():
            copied = Path(folder) / entry.name
            if entry.is_file() and entry.stat().st_size <= _MOST_COPIED_BYTES:
                shutil.copy2(entry.path, copied)
            else:
                copied.symlink_to(os.path.abspath(entry.path))
        yield folder
