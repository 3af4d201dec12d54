"""Sources in parts: messages between main process and workers, and reports that no worker can have written."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.memory.slot_layout import OutputSchema
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.base import InlinePool
from dali_like.engine.worker.parts import AbsentSampleError, PartReport, pack_parts
from dali_like.engine.worker.source import Source, SourceType
from dali_like.errors import CorruptionError


class Places:
    """Computes the samples at the places that a text names; odd positions above 4 have none."""

    def __init__(self, text: bytes, message: bytes = b"message", reported: Sequence[int] | None = None) -> None:
        self.places = list(text)
        self.packed_places = struct.pack(f"={len(text)}q", *(text if reported is None else reported))
        self._message = message

    def begin(self, first: int, stride: int) -> None:
        """Read nothing ahead."""

    def at(self, position: int) -> Any:
        if position > 4 and position % 2:
            raise AbsentSampleError
        return np.full((2,), position)

    def message(self) -> bytes:
        return self._message


class Callback:
    def __init__(self, make: Callable[[bytes], Places] = Places) -> None:
        self.begin_part = lambda epoch, text: make(text)
        self.places_of = lambda text: struct.pack(f"={len(text)}q", *text)

    def __call__(self, info: Any) -> Any:
        raise NotImplementedError


def pool_of(callback: Any) -> InlinePool:
    source = Source("numbers", callback, type=SourceType.PARTS)
    return InlinePool([(source, [OutputSchema()])], 6, SharedSpace.create(for_processes=False))


def compute(pool: InlinePool, first: int, places: bytes) -> tuple[Any, list[int], list[bytes]]:
    """Return the output of a batch, its samples, and the messages."""
    batch = pool.submit(BatchKey(0, 0, 0, first, 6, request=pack_parts([places]), parts=7))
    (output,) = pool.wait(batch)
    return output, [int(sample[0]) for sample in output], [report.message for report in batch.reports]


def test_full_batches_are_arrays_and_others_have_fewer_samples() -> None:
    pool = pool_of(Callback())

    for first, places, expected in (
        (0, bytes(range(6)), [0, 1, 2, 3, 4]),
        (-6, bytes(range(6)), [-6, -5, -4, -3, -2, -1]),
        (-6, bytes(range(6)), [-6, -5, -4, -3, -2, -1]),
        (4, bytes([1, 2, 4]), [6, 8]),
        (5, bytes([0]), []),
    ):
        output, samples, messages = compute(pool, first, places)
        assert samples == expected
        assert isinstance(output, np.ndarray) or len(expected) not in (0, 6)
        assert messages == [b"message"]
    pool.close()


def test_parts_without_empty_places_and_messages_need_no_report() -> None:
    pool = pool_of(Callback(functools.partial(Places, message=b"")))

    for first, places, expected in (
        (0, bytes(range(5)), [0, 1, 2, 3, 4]),  # in the region: the schema is unknown
        (-6, bytes(range(6)), [-6, -5, -4, -3, -2, -1]),
        (-6, bytes([1, 4]), [-5, -2]),
        (2, bytes([1, 3, 4]), [3, 6]),  # 5 is missing
        (-6, b"", []),
    ):
        _, samples, messages = compute(pool, first, places)
        assert (samples, messages) == (expected, [b""])
    pool.close()


def test_a_report_is_read_as_it_was_written() -> None:
    report = PartReport(2, True, struct.pack("=2q", 1, 5), b"text")

    assert PartReport.unpack(report.pack()) == report
    assert report.places == [1, 5]


@pytest.mark.parametrize("text", [b"", b"short", struct.pack("=2q", -1, 0), struct.pack("=3q", 2, 0, 1)])
def test_a_text_that_is_too_short_for_its_places_is_no_report(text: bytes) -> None:
    assert PartReport.unpack(text) is None


@pytest.mark.parametrize("reported", [[7], [-1]])
def test_places_outside_of_the_batch_are_corruption(reported: list[int]) -> None:
    pool = pool_of(Callback(lambda text: Places(text, reported=reported)))

    with pytest.raises(CorruptionError, match="the report of a task of numbers is invalid"):
        compute(pool, 0, bytes([3]))
    pool.close()
