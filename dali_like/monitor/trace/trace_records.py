"""Contents of a trace: spans on tracks, and counts. All times are nanoseconds of CLOCK_MONOTONIC."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

#: Groups of tracks.
MAIN, WORKERS, GPU = "main process", "workers", "GPU"

#: Names of spans on the tracks of the main process.
RUN, WAIT, ASSEMBLE, STEP, BUILD = "run", "wait", "assemble", "step", "build"
#: Names of spans of operators in threads, and of the part of a task inside the callback.
OPERATORS, CALLBACK = "operators", "callback"
#: Details of a part of another span have the name of that one under this key. All calls of an operator in a task, or in a
#: thread's share of a batch, are one part. Parts follow each other from the begin on, although samples pass through all.
PART_OF = "part of"


#: A task of a worker is slow if it takes so many times the median of its source, and at least so long.
_SLOW_TIMES, _SLOW_NS = 10, 10_000_000
#: Fewer tasks have no median to compare with.
_LEAST_TASKS = 10


class Track(NamedTuple):
    """A line of the timeline.

    Attributes:
        group: MAIN, WORKERS or GPU.
        name: "main thread", "worker 0".
    """

    group: str
    name: str


class Span(NamedTuple):
    """A named interval on a track.

    Attributes:
        details: further facts, such as the batch and its samples.
    """

    track: Track
    name: str
    begin_ns: int
    end_ns: int
    details: dict[str, Any]


class Count(NamedTuple):
    """Numbers at one moment, by name of the series."""

    name: str
    at_ns: int
    values: dict[str, int]


@dataclass
class Records:
    """The recorded spans and counts of a trace.

    Attributes:
        begin_ns, end_ns: start and end of the trace.
        lost: tasks that workers overwrote in their logs before the main process read them.
        dropped: spans and counts beyond the limit.
        diagnosis: the bottleneck during the trace, see `dali_like.monitor.measure.diagnosis.Diagnosis.texts`; empty:
            unknown.
    """

    begin_ns: int
    end_ns: int = 0
    spans: list[Span] = field(default_factory=list)
    counts: list[Count] = field(default_factory=list)
    lost: int = 0
    dropped: int = 0
    diagnosis: dict[str, str] = field(default_factory=dict)


def slow_tasks(records: Records) -> list[tuple[Span, float]]:
    """Return the tasks of workers that take ten times the median of their source or longer, each with that factor."""
    by_source: defaultdict[str, list[Span]] = defaultdict(list)
    for span in records.spans:
        if span.track.group == WORKERS and PART_OF not in span.details:
            by_source[span.name].append(span)
    slow = []
    for spans in by_source.values():
        if len(spans) < _LEAST_TASKS:
            continue
        median_ns = statistics.median(span.end_ns - span.begin_ns for span in spans)
        for span in spans:
            took_ns = span.end_ns - span.begin_ns
            if took_ns >= max(_SLOW_TIMES * median_ns, _SLOW_NS):
                slow.append((span, took_ns / max(median_ns, 1)))
    return slow
