"""Plot the tables: samples per second of each system, with their range. Needs matplotlib."""

from __future__ import annotations

import importlib
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measurement import Measurement

__all__ = ["draw"]

INCHES = (7.0, 0.4)


def draw(path: Path, measurements: Sequence[Measurement]) -> None:
    """Draw one bar per system and workload: the median, and a line from minimum to maximum. Print the reason if this
    fails.
    """
    try:
        figures = importlib.import_module("matplotlib.figure")
    except ImportError:
        print("no picture: matplotlib is not installed", file=sys.stderr)
        return
    by_workload: dict[str, dict[str, list[float]]] = {}
    for each in measurements:
        if each.samples_per_s is not None:
            by_workload.setdefault(each.workload, {}).setdefault(each.system, []).append(each.samples_per_s)
    if not by_workload:
        return
    heights = [len(systems) + 1.5 for systems in by_workload.values()]
    picture = figures.Figure(figsize=(INCHES[0], INCHES[1] * sum(heights)), layout="constrained")
    places = picture.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    for place, (workload, systems) in zip(places, by_workload.items(), strict=True):
        _draw_workload(place, workload, systems)
    picture.savefig(path)


def _draw_workload(place: Any, workload: str, systems: dict[str, list[float]]) -> None:
    medians = [statistics.median(rates) for rates in systems.values()]
    below = [median - min(rates) for median, rates in zip(medians, systems.values(), strict=True)]
    above = [max(rates) - median for median, rates in zip(medians, systems.values(), strict=True)]
    place.barh(list(systems), medians, xerr=[below, above], color="0.7", ecolor="0.2")
    place.invert_yaxis()
    place.set_title(f"{workload}: samples per second", loc="left", fontsize="medium")
    place.spines[["top", "right"]].set_visible(False)
