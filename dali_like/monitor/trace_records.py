"""What a trace consists of: spans on tracks, and counts. All times are nanoseconds of CLOCK_MONOTONIC."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

#: What the tracks of one group have in common; see `Track`.
MAIN, WORKERS, GPU = "main process", "workers", "GPU"

#: Names of spans on the tracks of the main process.
RUN, WAIT, ASSEMBLE, STEP, BUILD = "run", "wait", "assemble", "step", "build"


class Track(NamedTuple):
    """A line of the timeline.

    Attributes:
        group: MAIN, WORKERS or GPU.
        name: "main thread", "worker 0".
    """

    group: str
    name: str


class Span(NamedTuple):
    """Something that took time.

    Attributes:
        details: what is known of it: the batch, the samples.
    """

    track: Track
    name: str
    begin_ns: int
    end_ns: int
    details: dict[str, Any]


class Count(NamedTuple):
    """Some numbers at a moment: one each of what is counted under that name."""

    name: str
    at_ns: int
    values: dict[str, int]


@dataclass
class Records:
    """All that a trace has recorded.

    Attributes:
        begin_ns, end_ns: of the trace.
        lost: how many tasks of workers were overwritten before they were read.
        dropped: how many spans and counts were left out, since there were too many.
    """

    begin_ns: int
    end_ns: int = 0
    spans: list[Span] = field(default_factory=list)
    counts: list[Count] = field(default_factory=list)
    lost: int = 0
    dropped: int = 0
