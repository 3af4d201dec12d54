"""Draw traces with Matplotlib: diagnosis, timeline, cost of each batch, use of the ring, and its memory."""

from __future__ import annotations

import os
import textwrap
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from dali_like.common.extras import optional
from dali_like.monitor.trace.chrome import tracks_of
from dali_like.monitor.trace.trace_records import ASSEMBLE, BUILD, MAIN, PART_OF, RUN, STEP, WAIT, Records, Span, slow_tasks

_COLORS = {RUN: "#c9ced6", WAIT: "#d9534f", ASSEMBLE: "#f0ad4e", STEP: "#5cb85c", BUILD: "#8e7cc3"}
#: Colors of sources, operators and copies, in the order of their appearance.
_OTHERS = (
    *("#4a7fb5", "#48a9a6", "#7b9e3c", "#b58900", "#6c71c4"),
    *("#2f5d8a", "#d45087", "#9c755f", "#a05195", "#86bcb6"),
)
_INCHES_WIDE, _INCHES_A_TRACK, _INCHES_A_CURVE, _INCHES_A_NAME = 12.0, 0.4, 1.8, 0.22
#: Room above the highest value of a curve.
_HEADROOM = 1.1
#: Spans closer than this share of the whole are drawn as one.
_RESOLUTION = 1 / 4000
_NS_PER_MS, _NS_PER_S = 1e6, 1e9
_MIB = float(1 << 20)
_TITLE_WIDTH = 140


class BatchCost(NamedTuple):
    """Time of the program for one batch.

    Attributes:
        begin_ns: time of the request.
        wait_ns: waiting time.
        work_ns: work of the main process for the pipeline: assembly, and sources and operators that are not parallel.
        step_ns: the step of the training loop with the batch.
    """

    begin_ns: int
    wait_ns: int
    work_ns: int
    step_ns: int


def batch_costs(records: Records) -> list[BatchCost]:
    """Return the cost of each batch, of all threads that requested batches, in the order of time."""
    return sorted(_costs(records))


def _costs(records: Records) -> Iterator[BatchCost]:
    by_track = {track: spans for track, spans in tracks_of(records).items() if track.group == MAIN}
    for spans in by_track.values():
        waits = [span for span in spans if span.name == WAIT]
        begins = [span.begin_ns for span in waits]
        steps = {span.begin_ns: span.end_ns - span.begin_ns for span in spans if span.name == STEP}
        step_begins = sorted(steps)
        for run in (span for span in spans if span.name == RUN):
            inside = waits[bisect_right(begins, run.begin_ns - 1) : bisect_right(begins, run.end_ns)]
            wait_ns = sum(span.end_ns - span.begin_ns for span in inside)
            following = bisect_right(step_begins, run.end_ns - 1)
            step_ns = steps[step_begins[following]] if following < len(step_begins) else 0
            yield BatchCost(run.begin_ns, wait_ns, run.end_ns - run.begin_ns - wait_ns, step_ns)


def draw(records: Records, path: str | os.PathLike[str]) -> None:
    """Draw a trace into a file.

    Args:
        path: file whose suffix is a format of Matplotlib.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    figures = optional("matplotlib.figure", "a picture", "plot")
    tracks = tracks_of(records)
    names = {span.name for span in records.spans}
    inches = 1.0 + max(_INCHES_A_TRACK * max(len(tracks), 1), _INCHES_A_NAME * len(names))  # the legend is as high
    heights = (inches, _INCHES_A_CURVE, _INCHES_A_CURVE, _INCHES_A_CURVE)
    figure = figures.Figure(figsize=(_INCHES_WIDE, sum(heights)), layout="constrained")
    timeline, times, ring, memory = figure.subplots(4, 1, sharex=True, height_ratios=heights)
    _draw_timeline(timeline, records, tracks)
    _draw_times(times, records)
    _draw_ring(ring, records)
    _draw_memory(memory, records)
    memory.set_xlabel("s since the start of the trace")
    title = []
    if found := records.diagnosis:
        title = [f"Bottleneck: {found['bottleneck']}", *textwrap.wrap(found["sentence"], _TITLE_WIDTH)]
    if records.lost or records.dropped:
        title.append(f"{records.lost} tasks lost, {records.dropped} records dropped")
    figure.suptitle("\n".join(title), ha="left", x=0.01, fontsize="medium")
    figure.savefig(path)


def _draw_timeline(axes: Any, records: Records, tracks: dict[Any, list[Span]]) -> None:
    colors = dict(_COLORS)
    for line, spans in enumerate(tracks.values()):
        by_name: defaultdict[str, list[Span]] = defaultdict(list)
        for span in spans:
            by_name[span.name].append(span)
        # Nested spans are drawn on top: of runs, and of tasks their parts.
        parts = {span.name for span in spans if PART_OF in span.details}
        for name in sorted(by_name, key=lambda name: (name != RUN, name in parts)):
            if name not in colors:
                colors[name] = _OTHERS[(len(colors) - len(_COLORS)) % len(_OTHERS)]
            bars = [(_s(records, begin), (end - begin) / _NS_PER_S) for begin, end in _merged(by_name[name], records)]
            # A label for each track would repeat the name in the legend.
            label = None if name in axes.get_legend_handles_labels()[1] else name
            axes.broken_barh(bars, (line - 0.4, 0.8), facecolors=colors[name], label=label)
    if slow := slow_tasks(records):
        lines = {track: line for line, track in enumerate(tracks)}
        at = [(_s(records, span.begin_ns), lines[span.track] - 0.4) for span, _ in slow]
        axes.scatter(*zip(*at, strict=True), marker="v", color="#000000", s=18, zorder=3, label=f"slow task ({len(slow)})")
    axes.set_yticks(range(len(tracks)), [track.name for track in tracks])
    axes.set_ylim(len(tracks) - 0.4, -0.6)
    axes.set_title("timeline", loc="left")
    if tracks:
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)


def _merged(spans: Sequence[Span], records: Records) -> Iterator[tuple[int, int]]:
    """Yield begin and end of spans, merging spans that the picture cannot separate."""
    least_ns = (records.end_ns - records.begin_ns) * _RESOLUTION
    begin, end = spans[0].begin_ns, spans[0].end_ns
    for span in spans[1:]:
        if span.begin_ns - end > least_ns:
            yield begin, end
            begin, end = span.begin_ns, span.end_ns
        else:
            end = max(end, span.end_ns)
    yield begin, end


def _draw_times(axes: Any, records: Records) -> None:
    batches = batch_costs(records)
    at = [_s(records, batch.begin_ns) for batch in batches]
    stacks = [[ns / _NS_PER_MS for ns in column] for column in list(zip(*batches, strict=True))[1:]]
    if at:
        colors = [_COLORS[WAIT], _COLORS[RUN], _COLORS[STEP]]
        axes.stackplot(at, *stacks, step="post", labels=["wait", "work for the pipeline", "step"], colors=colors)
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    axes.set_ylabel("ms a batch")
    axes.set_title("time per batch", loc="left")


def _draw_ring(axes: Any, records: Records) -> None:
    axes.set_title("ring", loc="left")
    axes.set_ylabel("batches")
    batches = [count for count in records.counts if count.name == "batches"]
    if not batches:
        axes.text(0.5, 0.5, "no workers", transform=axes.transAxes, ha="center", va="center")
        return
    at = [_s(records, count.at_ns) for count in batches]
    axes.step(at, [count.values["slots_in_use"] for count in batches], where="post", label="slots in use", color="#4a7fb5")
    axes.step(at, [count.values["ready"] for count in batches], where="post", label="ready batches", color="#5cb85c")
    axes.set_ylim(0, _HEADROOM * max(1, *(count.values["slots_in_use"] for count in batches)))
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)


def _draw_memory(axes: Any, records: Records) -> None:
    axes.set_title("shared memory", loc="left")
    axes.set_ylabel("MiB")
    memory = [count for count in records.counts if count.name == "shared memory"]
    at = [_s(records, count.at_ns) for count in memory]
    mib = [count.values["bytes"] / _MIB for count in memory]
    axes.step(at, mib, where="post", color="#8e7cc3")
    axes.set_ylim(0, _HEADROOM * max(mib, default=0.0) or 1.0)


def _s(records: Records, time_ns: int) -> float:
    return (time_ns - records.begin_ns) / _NS_PER_S
