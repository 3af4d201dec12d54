"""A slot as the one who fills it sees it: where each sample goes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.engine.memory.protocol import (
    DESCRIPTOR_WORDS,
    DTYPES,
    HEADER_WORDS,
    UNKNOWN,
    WORD_BYTES,
    Header,
    Word,
)
from dali_like.engine.memory.space import SharedSpace


class Target(NamedTuple):
    """Where samples of one output go, each by a key of its own: ``memory[key] = array``; and what they must be for that."""

    memory: Any
    dtype: np.dtype[Any]
    shape: tuple[int, ...] | None


#: In place of a target where there are no rows: no array has this shape.
_NO_TARGET = Target(None, np.dtype(float), None)

#: What lies in one piece and has no more than this is copied by `mmap`, which takes 0.1 us less than NumPy. But no other
#: thread runs for those 20 us at most; and where there is no GIL, it is one at a time that copies.
MOST_PLAIN_BYTES = 1 << 18 if getattr(sys, "_is_gil_enabled", lambda: True)() else 0


class SlotView:
    """A slot as the one who fills it sees it: what its header says, read once for all batches of the same slot_layout.

    Attributes:
        expected: for each output, its descriptor in the header: dtype, dimensions, and where the rows are.
        rows: for each output, an array over all of its rows; None where it has none.
        targets: for each output, where its samples go.
        marks, counts, descriptors: see `dali_like.engine.memory.ring.Slot`.
    """

    def __init__(self, space: SharedSpace, offset: int, words: Sequence[int]) -> None:
        word = np.dtype(np.int64)
        num_outputs = words[Header.NUM_OUTPUTS]
        capacity = words[Header.CAPACITY]
        self.offset = offset
        self.slot_layout = words[Header.LAYOUT]
        self.task_size = words[Header.TASK_SIZE]
        self.regions_offset = offset + words[Header.REGIONS_OFFSET]
        self.region_bytes = words[Header.REGION_BYTES]
        num_tasks = -(-capacity // self.task_size)
        marks_offset = offset + words[Header.MARKS_OFFSET]
        self.marks = space.array(marks_offset, (num_tasks,), word)
        self.counts = space.array(marks_offset + num_tasks * WORD_BYTES, (num_tasks,), word)
        self.descriptors_offset = offset + words[Header.DESCRIPTORS_OFFSET]
        self.descriptors: NDArray[np.int64] = space.array(
            self.descriptors_offset, (capacity, num_outputs, DESCRIPTOR_WORDS), word
        )
        self.expected: list[list[int]] = space.array(
            offset + HEADER_WORDS * word.itemsize, (num_outputs, DESCRIPTOR_WORDS), word
        ).tolist()
        #: Of each output, as far as known: the code of its dtype and its number of dimensions; and where its rows are.
        self.kinds = [(expected[Word.DTYPE], expected[Word.NDIM]) for expected in self.expected]
        self.offsets = [expected[Word.OFFSET] for expected in self.expected]
        self.has_rows = UNKNOWN not in self.offsets
        self._keys: dict[int, list[Sequence[Any]]] = {}
        self._capacity = capacity
        self.rows: list[Any] = [self._rows_of(space, expected) for expected in self.expected]
        self._map = space.map
        self._set_targets(MOST_PLAIN_BYTES)

    @property
    def num_keys(self) -> int:
        """How many keys are kept."""
        return sum(len(keys) for of_task in self._keys.values() for keys in of_task if isinstance(keys, list))

    def keys_of(self, task: int) -> list[Sequence[Any]]:
        """For each output, the keys of a task's samples to its target."""
        keys = self._keys.get(task)
        if keys is None:
            samples = range(task * self.task_size, min((task + 1) * self.task_size, self._capacity))
            keys = self._keys[task] = [self._output_keys(output, samples) for output in range(len(self.targets))]
        return keys

    def expect_gaps(self) -> None:
        """Let NumPy copy all samples from the next task on, since there are some that do not lie in one piece."""
        self._set_targets(0)
        self._keys.clear()

    def _set_targets(self, most_plain_bytes: int) -> None:
        self.targets = [
            _NO_TARGET
            if rows is None
            else Target(self._map if expected[Word.NBYTES] <= most_plain_bytes else rows, rows.dtype, rows.shape[1:])
            for rows, expected in zip(self.rows, self.expected, strict=True)
        ]

    def _output_keys(self, output: int, samples: range) -> Sequence[Any]:
        if self.targets[output].memory is not self._map:
            return samples
        begin, nbytes = self.offset + self.offsets[output], self.expected[output][Word.NBYTES]
        return [slice(begin + i * nbytes, begin + (i + 1) * nbytes) for i in samples]

    def _rows_of(self, space: SharedSpace, expected: list[int]) -> NDArray[Any] | None:
        if expected[Word.OFFSET] == UNKNOWN:
            return None
        shape = tuple(expected[Word.SHAPE : Word.SHAPE + expected[Word.NDIM]])
        return space.array(self.offset + expected[Word.OFFSET], (self._capacity, *shape), DTYPES[expected[Word.DTYPE]])
