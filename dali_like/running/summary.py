"""The summary of a program's loaders, from the records of its processes."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dali_like.monitor.measure.text import seconds_text
from dali_like.running.run_settings import RunSettings

__all__ = ["print_summary", "rates_of", "summary_lines"]

_WIDTH = 100
_PLACE_WIDTH = 34

Record = Mapping[str, Any]


def print_summary(records: Sequence[Record], settings: RunSettings) -> None:
    """Print the summary on stderr, so that the output of the program stays as it is."""
    print("\n".join(summary_lines(records, settings)), file=sys.stderr, flush=True)


def summary_lines(records: Sequence[Record], settings: RunSettings) -> Iterator[str]:
    """Yield the lines of the summary.

    Args:
        records: one for each process; see `dali_like.running.recording`.
        settings: the options of the program.
    """
    yield f"dali-like run: {mode_of(settings)}"
    if any(record["dali"] for record in records):
        yield "nvidia.dali was dali_like"
    rows = [(record, loader) for record in sorted(records, key=_order) for loader in record["loaders"]]
    if not rows:
        yield "No loader was iterated over. Does the program use torch.utils.data.DataLoader?"
        return
    yield f"{'rank':<6}{'loader':<{_PLACE_WIDTH}}{'batches':>9}{'samples/s':>11}{'batches/s':>11}{'waiting':>9}{'first':>9}"
    for record, loader in rows:
        samples, batches, waiting = rates_of(loader)
        place = str(loader["place"])
        if len(place) >= _PLACE_WIDTH:
            place = f"...{place[4 - _PLACE_WIDTH :]}"
        yield (
            f"{record['rank'] or '-':<6}{place:<{_PLACE_WIDTH}}{loader['batches']:>9,}{samples:>11,.0f}{batches:>11,.1f}"
            f"{waiting:>9.0%}{seconds_text(loader['first_batch_s']):>9}"
        )
        texts = [f"Bottleneck: {loader['bottleneck']}. {loader['sentence']} {loader['advice']} {loader['expected']}".strip()]
        if loader["foreign"]:
            texts.insert(0, f"PyTorch's iterator: {loader['foreign']}")
        for text in texts:
            yield from textwrap.wrap(text, _WIDTH, initial_indent="      ", subsequent_indent="      ")


def mode_of(settings: RunSettings) -> str:
    """Return one sentence about the loaders and the random numbers of a program."""
    if settings.baseline:
        return "PyTorch's own loader, measured."
    if settings.fast:
        return "dali_like's loader with its own random numbers (--fast)."
    return "dali_like's loader with PyTorch's random numbers; --fast is faster, with others."


def rates_of(loader: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return samples and batches per second of a loader, and the share of the time in which the loop waited."""
    seconds = loader["wait_s"] + loader["work_s"]
    if not seconds:
        return 0.0, 0.0, 0.0
    batches_per_s = loader["timed"] / seconds
    return batches_per_s * loader["samples"] / max(loader["batches"], 1), batches_per_s, loader["wait_s"] / seconds


def _order(record: Record) -> tuple[int, int]:
    return int(record["rank"]) if str(record["rank"]).isdigit() else -1, record["pid"]
