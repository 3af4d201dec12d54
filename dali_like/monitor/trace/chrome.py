"""Read and write traces in the Trace Event Format of Perfetto and Chrome.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Times are microseconds since the
start of the trace.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dali_like.common.json_text import json_value
from dali_like.errors import TraceFileError
from dali_like.monitor.trace.trace_records import GPU, MAIN, WORKERS, Count, Records, Span, Track, slow_tasks

_GROUPS = (MAIN, WORKERS, GPU)
_MAKER = "dali_like"


def write(records: Records, path: Path) -> None:
    """Write records to a file, replacing it."""
    path.write_text(json.dumps(as_json(records), separators=(",", ":")), encoding="utf-8")


def as_json(records: Records) -> dict[str, Any]:
    """Return records as a JSON object of the format."""
    tracks = sorted({span.track for span in records.spans}, key=_order)
    numbers = {track: number for number, track in enumerate(tracks)}
    return {
        "displayTimeUnit": "ms",
        "otherData": {
            "made_by": _MAKER,
            "clock": "CLOCK_MONOTONIC",
            "begin_ns": records.begin_ns,
            "end_ns": records.end_ns,
            "lost_records": records.lost,
            "dropped_records": records.dropped,
            "diagnosis": records.diagnosis,
        },
        "traceEvents": [*_names(tracks), *_events(records, numbers), *_marks(records, numbers)],
    }


def _order(track: Track) -> tuple[int, bool, str, int]:
    """Return the sort key of a track: the main thread first, numbers by value."""
    words, _, number = track.name.rpartition(" ")
    by_name = (words, int(number)) if number.isdigit() else (track.name, 0)
    return _GROUPS.index(track.group), track.name != "main thread", *by_name


def _names(tracks: list[Track]) -> Iterator[dict[str, Any]]:
    for pid, group in enumerate(_GROUPS):
        if any(track.group == group for track in tracks) or group == MAIN:
            yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": group}}
            yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}
    for tid, track in enumerate(tracks):
        where = {"pid": _GROUPS.index(track.group), "tid": tid}
        yield {"ph": "M", "name": "thread_name", **where, "args": {"name": track.name}}
        yield {"ph": "M", "name": "thread_sort_index", **where, "args": {"sort_index": tid}}


def _events(records: Records, numbers: dict[Track, int]) -> Iterator[dict[str, Any]]:
    def us(time_ns: int) -> float:
        return (time_ns - records.begin_ns) / 1000

    for track, name, begin_ns, end_ns, details in records.spans:
        where = {"pid": _GROUPS.index(track.group), "tid": numbers[track]}
        duration = (end_ns - begin_ns) / 1000
        yield {"ph": "X", "name": name, "cat": track.group, **where, "ts": us(begin_ns), "dur": duration, "args": details}
    for name, at_ns, values in records.counts:
        yield {"ph": "C", "name": name, "pid": 0, "ts": us(at_ns), "args": values}


def _marks(records: Records, numbers: dict[Track, int]) -> Iterator[dict[str, Any]]:
    """Yield a mark on the timeline at the beginning of each slow task."""
    for span, factor in slow_tasks(records):
        yield {
            "ph": "i",
            "s": "t",  # on its track alone
            "name": f"slow: {factor:,.0f} times the median",
            "cat": "slow",
            "pid": _GROUPS.index(span.track.group),
            "tid": numbers[span.track],
            "ts": (span.begin_ns - records.begin_ns) / 1000,
            "args": span.details,
        }


def load(path: Path) -> Records:
    """Read a file of `write`.

    Raises:
        TraceFileError: the file is not such a trace.
    """
    try:
        return _records_of(json_value(path.read_text(encoding="utf-8")))
    except UnicodeDecodeError as error:  # its text would have the whole file
        raise TraceFileError(f"{path} is not a trace of dali_like: it is not text") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise TraceFileError(f"{path} is not a trace of dali_like: {error!r:.200}") from error


def _records_of(trace: dict[str, Any]) -> Records:
    about = trace["otherData"]
    if about["made_by"] != _MAKER:
        raise ValueError(f"made by {about['made_by']}")
    begin_ns = int(about["begin_ns"])
    lost, dropped = int(about["lost_records"]), int(about["dropped_records"])
    diagnosis = {str(name): str(text) for name, text in about.get("diagnosis", {}).items()}
    records = Records(begin_ns, int(about["end_ns"]), lost=lost, dropped=dropped, diagnosis=diagnosis)

    def ns(event: dict[str, Any]) -> int:
        return begin_ns + round(float(event["ts"]) * 1000)

    tracks: dict[tuple[int, int], Track] = {}
    for event in trace["traceEvents"]:
        if event["name"] == "thread_name":
            tracks[event["pid"], event["tid"]] = Track(_GROUPS[event["pid"]], str(event["args"]["name"]))
        elif event["ph"] == "X":
            track = tracks[event["pid"], event["tid"]]
            end_ns = ns(event) + round(event["dur"] * 1000)
            records.spans.append(Span(track, str(event["name"]), ns(event), end_ns, dict(event["args"])))
        elif event["ph"] == "C":
            records.counts.append(Count(str(event["name"]), ns(event), dict(event["args"])))
    return records


def tracks_of(records: Records) -> dict[Track, list[Span]]:
    """Return the spans of each track, in the order of the file."""
    ordered = sorted(records.spans, key=lambda span: (_order(span.track), span.begin_ns))
    return {track: list(spans) for track, spans in itertools.groupby(ordered, key=lambda span: span.track)}
