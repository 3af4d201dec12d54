"""The form of published statistics, which readers check: strangers may publish anything.

`dali_like.monitor.show.live.snapshot` makes them.
"""

from __future__ import annotations

import math
from typing import Any

from dali_like.common.json_state import TEXT, Schema, integer, list_of, mapping, optional, plain

__all__ = ["SNAPSHOT"]

#: Larger integers cannot be divided or drawn.
_MOST = (1 << 63) - 1


def _is_finite(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return -_MOST <= value <= _MOST if isinstance(value, int) else math.isfinite(value)


def _is_histogram(value: Any) -> bool:
    return 0 < len(value["counts"]) == len(value["edges_s"]) - 1


_COUNT = integer(0, _MOST)
_ANY_INTEGER = integer(-_MOST, _MOST)
_NUMBER: Schema = plain("a finite number", _is_finite)
_CALLS = mapping(source=TEXT, unit=TEXT, counts=list_of(_COUNT), edges_s=list_of(_NUMBER))
_HISTOGRAM: Schema = plain("a histogram", _is_histogram)

#: Published statistics.
SNAPSHOT: Schema = mapping(
    version=_COUNT,
    pid=_COUNT,
    rank=_COUNT,
    num_ranks=_COUNT,
    name=TEXT,
    at_ns=_ANY_INTEGER,
    batches=_COUNT,
    samples=_COUNT,
    epochs=_COUNT,
    errors=_COUNT,
    wait_s=_NUMBER,
    restarts=_COUNT,
    replaced=_COUNT,
    bytes=_COUNT,
    ready=_COUNT,
    slots_in_use=_ANY_INTEGER,
    workers=list_of(mapping(number=_COUNT, pid=optional(_COUNT), busy_s=_NUMBER, on_task_s=optional(_NUMBER))),
    slowest=list_of(mapping(source=TEXT, sample=_ANY_INTEGER, epoch=_ANY_INTEGER, duration_s=_NUMBER)),
    calls=list_of(lambda value, where: _CALLS(value, where) or _HISTOGRAM(value, where)),
    operators=list_of(mapping(name=TEXT, place=TEXT, seconds=_NUMBER)),
    recent=mapping(
        seconds=_NUMBER,
        batches=_COUNT,
        wait_s=_NUMBER,
        work_s=_NUMBER,
        wait_share=_NUMBER,
        diagnosis=mapping(bottleneck=TEXT, sentence=TEXT, advice=TEXT, expected=TEXT),
        stages=list_of(mapping(name=TEXT, wait_s=_NUMBER, share=_NUMBER)),
    ),
)
