"""Sources in parts: each worker computes the samples of a batch that belong to it, at any places of the batch.

The main process divides the places of a batch among workers, and sends each of them a part: a text that only the callback
and the main process understand. The callback names the places of its part. A place may turn out to have no sample; then the
batch is smaller. Behind its samples, a task reports their places and a message of the callback.

A sample of the expected schema goes to its row. While that holds for all samples of a task, none has a descriptor. If a
place of a batch stays empty, the main process delivers the others as a list of samples.

This code runs where tasks are computed: in workers, or in the main process.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from dali_like.common.foreign_errors import is_a
from dali_like.engine.memory.protocol import WORD_BYTES
from dali_like.engine.memory.slot_layout import describe_places
from dali_like.engine.worker.meters import Interval
from dali_like.engine.worker.task import NoMemoryError, Region, RegionFullError, Task, sample_info
from dali_like.types import SampleInfo

if TYPE_CHECKING:
    from dali_like.engine.worker.runner import TaskRunner

__all__ = ["AbsentSampleError", "PartCallback", "PartReport", "PartTask", "make_part", "pack_parts"]

_WORD = np.dtype(np.int64)


class AbsentSampleError(Exception):
    """There is no sample at this place."""


class PartCallback(Protocol):
    """The callback of a source in parts. Each thread has a part of its own."""

    def begin_part(self, epoch: int, text: bytes) -> Sequence[int]:
        """Take the part of a task, and return the places of its samples in the batch, ascending."""

    def __call__(self, info: SampleInfo) -> Any:
        """Return a sample.

        Raises:
            AbsentSampleError: the place has no sample.
        """

    def end_part(self) -> bytes:
        """Return the message behind the samples of the part."""


def pack_parts(parts: Sequence[bytes]) -> bytes:
    """Return the request of a batch: the part of each of its tasks."""
    ends = np.cumsum([len(part) for part in parts])
    return np.array([len(parts), *ends], np.int64).tobytes() + b"".join(parts)


def _part_of(request: bytes, number: int) -> bytes:
    """Return the part of a task in the request of its batch."""
    (count,) = struct.unpack_from("=q", request)
    ends = struct.unpack_from(f"={count}q", request, WORD_BYTES)
    start = WORD_BYTES * (1 + count)
    return request[start + (ends[number - 1] if number else 0) : start + ends[number]]


class PartReport(NamedTuple):
    """What a task reports behind its samples.

    Attributes:
        places: of its samples in the batch, ascending.
        in_rows: whether all of them are in their rows, without descriptors.
        message: of the callback.
    """

    places: Sequence[int]
    in_rows: bool
    message: bytes

    def pack(self) -> bytes:
        """Return the report as bytes."""
        return struct.pack(f"={2 + len(self.places)}q", len(self.places), self.in_rows, *self.places) + self.message

    @classmethod
    def unpack(cls, text: bytes) -> PartReport | None:
        """Return the report in a text; None if that has another form."""
        if len(text) < 2 * WORD_BYTES:
            return None
        count, in_rows = struct.unpack_from("=2q", text)
        if not 0 <= count <= len(text) // WORD_BYTES - 2:
            return None
        places = struct.unpack_from(f"={count}q", text, 2 * WORD_BYTES)
        return cls(places, bool(in_rows), text[(2 + count) * WORD_BYTES :])


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

    def end_part(self, message: bytes) -> None:
        """Write the report."""
        in_rows = self.region is None
        if self.region is None:
            self.region = self._new_region()
        text = PartReport(self.found, in_rows, message).pack()
        offset = self.region.append(np.frombuffer(len(text).to_bytes(WORD_BYTES, "little") + text, np.uint8))
        self.region.space.array(self.region.start, (1,), _WORD)[0] = offset - self.region.start

    def _new_region(self) -> Region:
        region = Region(self._space, self.view, self.number)
        region.take(WORD_BYTES)
        return region


def make_part(runner: TaskRunner, task: Any, cell: memoryview) -> None:
    """Compute the samples of a task, and write its report."""
    source, callback = task.source, task.callback
    part: PartCallback = source.callback
    for place in part.begin_part(task.epoch, _part_of(bytes(task.request), task.number)):
        cell[0] = task.place = place
        try:
            sample = callback(sample_info(task, place))
            if not _put_in_rows(task, place, sample):
                runner.put(task, place, sample, source)
        except AbsentSampleError:
            continue
        except Exception as error:
            if source.on_error == "raise" or is_a(error, StopIteration, RegionFullError, NoMemoryError):
                raise
            runner.replace_sample(task, place, error)
        task.found.append(place)
    task.end_part(part.end_part())


def _put_in_rows(task: Any, place: int, sample: Any) -> bool:
    """Write a sample that consists of plain arrays of the expected shapes; otherwise write nothing and return False."""
    if task.region is not None or not task.has_rows:
        return False
    outputs = (sample,) if task.source.num_outputs is None else sample
    if outputs.__class__ is not tuple or len(outputs) != len(task.targets):
        return False
    for array, (_, dtype, shape) in zip(outputs, task.targets):  # noqa: B905  # `strict=` takes longer, here and below
        if array.__class__ is not np.ndarray or array.shape != shape or array.dtype != dtype:
            return False
    for array, rows in zip(outputs, task.view.rows):  # noqa: B905
        rows[place] = array
    return True
