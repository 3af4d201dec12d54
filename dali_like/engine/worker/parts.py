"""Sources in parts: each worker computes the samples of a batch that belong to it, at any places of the batch.

The main process divides the places of a batch among workers, and sends each of them a part: a text that only the callback
and the main process understand. A place may turn out to have no sample; then the batch is smaller. Behind its samples, a
task reports their places and a message of the callback.

A sample of the expected schema goes to its row. While that holds for all samples of a task, none has a descriptor. If each
place of the part has a sample, too, and there is no message, the task needs no report. If a place of a batch stays empty,
the main process delivers the others as a list of samples.

This code runs where tasks are computed: in workers, or in the main process.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from dali_like.common.foreign_errors import is_a
from dali_like.engine.memory.protocol import WORD_BYTES
from dali_like.engine.memory.slot_layout import describe_places
from dali_like.engine.worker.meters import Interval, Stopwatch
from dali_like.engine.worker.task import NoMemoryError, Region, RegionFullError, Task

if TYPE_CHECKING:
    from dali_like.engine.worker.runner import TaskRunner

__all__ = [
    "AbsentSampleError",
    "Part",
    "PartCallback",
    "PartReport",
    "PartTask",
    "make_part",
    "pack_parts",
    "part_of",
    "report_of",
]

_WORD = np.dtype(np.int64)
_COUNTS = struct.Struct("=2q")


class AbsentSampleError(Exception):
    """There is no sample at this place."""


class Part(Protocol):
    """The part of a task.

    Attributes:
        places: of its samples in the batch, ascending.
        packed_places: the same, as 64-bit integers.
    """

    places: Sequence[int]
    packed_places: bytes

    def begin(self, first: int, stride: int) -> None:
        """Begin work for the samples, given the ``idx_in_epoch`` of the first place of the batch and of the next ones."""

    def at(self, position: int) -> Any:
        """Return the sample with an ``idx_in_epoch``.

        Raises:
            AbsentSampleError: it is missing.
        """

    def message(self) -> bytes:
        """Return the message behind the samples."""


class PartCallback(Protocol):
    """The callback of a source in parts. Any thread may call it."""

    def begin_part(self, epoch: int, text: bytes) -> Part:
        """Return the part with a text."""

    def places_of(self, text: bytes) -> bytes:
        """Return the places of the part with a text, as 64-bit integers."""


def pack_parts(parts: Sequence[bytes]) -> bytes:
    """Return the request of a batch: the part of each of its tasks."""
    ends = itertools.accumulate(map(len, parts))
    return b"".join((struct.pack(f"={1 + len(parts)}q", len(parts), *ends), *parts))


def part_of(request: bytes, number: int) -> bytes:
    """Return the part of a task in the request of its batch."""
    (count,) = struct.unpack_from("=q", request)
    ends = struct.unpack_from(f"={count}q", request, WORD_BYTES)
    start = WORD_BYTES * (1 + count)
    return request[start + (ends[number - 1] if number else 0) : start + ends[number]]


class PartReport(NamedTuple):
    """Report of a task, in its region behind the samples.

    Attributes:
        num_samples: the number of its samples.
        in_rows: whether all of them are in their rows, without descriptors.
        packed_places: their places in the batch, ascending, as 64-bit integers.
        message: of the callback.
    """

    num_samples: int
    in_rows: bool
    packed_places: bytes
    message: bytes

    @property
    def places(self) -> list[int]:
        """The places of its samples in the batch, ascending."""
        return list(struct.unpack(f"={self.num_samples}q", self.packed_places))

    def pack(self) -> bytes:
        """Return the report as bytes."""
        return b"".join((_COUNTS.pack(self.num_samples, self.in_rows), self.packed_places, self.message))

    @classmethod
    def unpack(cls, text: bytes) -> PartReport | None:
        """Return the report in a text; None if that has another form."""
        if len(text) < _COUNTS.size:
            return None
        count, in_rows = _COUNTS.unpack_from(text)
        end = _COUNTS.size + count * WORD_BYTES
        if count < 0 or end > len(text):
            return None
        return cls(count, bool(in_rows), text[_COUNTS.size : end], text[end:])


class PartTask(Task):
    """A task whose samples are at any places of the batch. A report follows its samples in the region.

    The region begins with the offset of the report.

    Attributes:
        found: the places of the samples that are complete.
        place: of the next one.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.start, self.stop = 0, self.size
        self.found: list[int] = []
        self.place = 0

    def span(self) -> Interval:
        return Interval(self.epoch, self.iteration, self.first, len(self.found))

    def describe_all(self) -> Region:
        if self.region is None:
            with self._lock:
                if self.region is None:
                    for output, expected in enumerate(self.view.expected):
                        describe_places(self.view.descriptors, output, expected, [*self.found, self.place])
                    self.region = self._new_region()
        return self.region

    def end_part(self, part: Part) -> None:
        """Write the report, unless the main process knows it."""
        in_rows = self.region is None
        report = report_of(part, self.found, in_rows=in_rows)
        if self.region is None:
            if not report.message and report.num_samples == len(part.places):
                return
            self.region = self._new_region()
        text = report.pack()
        offset = self.region.append(np.frombuffer(len(text).to_bytes(WORD_BYTES, "little") + text, np.uint8))
        self.region.space.array(self.region.start, (1,), _WORD)[0] = offset - self.region.start

    def _new_region(self) -> Region:
        region = Region(self._space, self.view, self.number)
        region.take(WORD_BYTES)
        return region


def report_of(part: Part, found: list[int], *, in_rows: bool) -> PartReport:
    """Return the report of a part with samples at some of its places."""
    count = len(found)
    packed = part.packed_places if count == len(part.places) else struct.pack(f"={count}q", *found)
    return PartReport(count, in_rows, packed, part.message())


def make_part(runner: TaskRunner, task: Any, cell: memoryview, watch: Stopwatch | None) -> None:
    """Compute the samples of a task, and write its report."""
    source, found = task.source, task.found
    part: Part = source.callback.begin_part(task.epoch, part_of(bytes(task.request), task.number))
    at = part.at if watch is None else watch.timed(part.at)
    first, stride = task.first, source.stride
    part.begin(first, stride)
    # Samples of one output that fit their rows, by the fewest steps.
    ndarray, generic, (_, dtype, shape), rows = np.ndarray, np.generic, task.targets[0], task.view.rows[0]
    if source.num_outputs is not None:
        shape = None
    for place in part.places:
        cell[0] = task.place = place
        try:
            sample = at(first + place * stride)
            kind = sample.__class__
            if (
                (kind is ndarray or issubclass(kind, generic))
                and sample.shape == shape
                and sample.dtype == dtype
                and task.region is None
            ):
                rows[place] = sample
            else:
                runner.put(task, place, sample, source)
        except AbsentSampleError:
            continue
        except Exception as error:
            if source.on_error == "raise" or is_a(error, StopIteration, RegionFullError, NoMemoryError):
                raise
            runner.replace_sample(task, place, error)
        found.append(place)
        sample = None  # the next sample then gets the same memory, which is in the cache
    task.end_part(part)
