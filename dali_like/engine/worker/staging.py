"""Samples of equal shapes, gathered in a worker for operators that compute several samples at once.

The user's callback may return the same array again and again, so each sample is copied before the next call: into its row of
a staging area, as samples without operators go to rows of the slot. The operators then read a few rows as one array, and
write into the rows of the slot. The area belongs to the worker. It has the shapes that the callback returned last; a sample
of other shapes goes through the operators alone.
"""

from __future__ import annotations

import itertools
import math
import mmap
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dali_like.engine.memory.protocol import DESCRIPTOR_WORDS, DTYPE_CODES, Word, align
from dali_like.engine.memory.ring import SampleList
from dali_like.engine.worker.source import Source
from dali_like.engine.worker.task import NO_TARGET, Target, Task
from dali_like.types import CallContext, SampleInfo

#: Samples of one stack together. Inputs, intermediate results and results then stay in the CPU's second cache. A sample of
#: more than half of this is computed alone: its operators take longer than their calls.
STACK_BYTES = 1 << 17
_LEAST_ROWS = 2

_Kind: TypeAlias = tuple[np.dtype[Any], tuple[int, ...]]


class StackOperators(Protocol):
    """Operators behind a callback that compute stacks of samples.

    Attributes:
        source: the source without operators.
    """

    @property
    def source(self) -> Source: ...

    @property
    def works_together(self) -> bool:
        """Whether samples of different shapes may be computed together."""

    def compute(self, outputs: Sequence[Any], call: CallContext, info: SampleInfo) -> tuple[Any, ...]:
        """Return the results for the outputs of the callback for one sample.

        Raises:
            SampleError: an output is not an array, or not of the declared kind.
        """

    def compute_stack(
        self,
        stacks: Sequence[NDArray[Any]],
        call: CallContext,
        info: SampleInfo,
        *,
        count: int,
        stride: int,
        empty: Any,
    ) -> Sequence[NDArray[Any]]:
        """Return the results for several samples, each as an array whose first axis counts them.

        An error says nothing about its sample: call `compute` for each sample.

        Args:
            stacks: the outputs of the callback, likewise.
            call: measures the operators.
            info: of the first sample.
            count: the number of samples.
            stride: from the ``idx_in_epoch`` of one sample to the next.
            empty: given a result, a shape and a dtype, returns memory for a stack of results, or None.
        """

    def compute_together(
        self, inputs: Sequence[SampleList], call: CallContext, info: SampleInfo, *, stride: int, results: Sequence[Any]
    ) -> bool:
        """Compute the results for several samples of any shapes.

        An error says nothing about its sample.

        Args:
            inputs: for each output of the callback, the samples.
            call, info, stride: as for `compute_stack`.
            results: for each result, takes the samples; see `dali_like.graph.execution.batch_runs.Results`.

        Returns:
            Whether there are results. Otherwise call `compute` for each sample.
        """


def are_alike(outputs: Sequence[Any], first: Sequence[Any]) -> bool:
    """Whether the outputs of a sample may be packed together with those of the first one."""
    return all(
        array.__class__ is np.ndarray
        and array.dtype in DTYPE_CODES
        and array.dtype == other.dtype
        and array.ndim == other.ndim
        for array, other in zip(outputs, first, strict=True)
    )


class GatheredSamples:
    """Samples of any shapes, copied one behind the other: the callback may return the same memory again.

    Args:
        first: the outputs for the first sample. The others are alike; see `are_alike`.

    Attributes:
        nbytes: of all samples.
    """

    def __init__(self, first: Sequence[NDArray[Any]]) -> None:
        self.nbytes = 0
        self._dtypes = [array.dtype for array in first]
        self._memories = [bytearray() for _ in first]
        self._shapes: list[list[tuple[int, ...]]] = [[] for _ in first]
        self.add(first)

    def add(self, outputs: Sequence[NDArray[Any]]) -> None:
        """Copy the outputs for a sample."""
        for array, memory, shapes in zip(outputs, self._memories, self._shapes, strict=True):
            memory.extend(array.data.cast("B") if array.flags.c_contiguous and array.size else array.tobytes())
            shapes.append(array.shape)
            self.nbytes += array.nbytes

    def lists(self) -> list[SampleList]:
        """Return the samples of each output."""
        return [*map(_list_of, self._memories, self._dtypes, self._shapes)]


def _list_of(memory: bytearray, dtype: np.dtype[Any], shapes: Sequence[tuple[int, ...]]) -> SampleList:
    table, ndim = np.zeros((len(shapes), DESCRIPTOR_WORDS), np.int64), len(shapes[0])
    extents = np.array(shapes, np.int64).reshape(len(shapes), ndim)
    table[:, Word.SHAPE : Word.SHAPE + ndim] = extents
    table[:, Word.NBYTES] = np.multiply.reduce(extents, axis=1) * dtype.itemsize
    table[:, Word.OFFSET] = np.add.accumulate(table[:, Word.NBYTES]) - table[:, Word.NBYTES]
    table[:, Word.DTYPE], table[:, Word.NDIM] = DTYPE_CODES[dtype], ndim
    elements = np.ndarray((len(memory) // dtype.itemsize,), dtype, memory)
    return SampleList.within(elements, elements.__array_interface__["data"][0], table)


class Staging:
    """Rows for samples of the shapes and dtypes that two samples in a row had last.

    Attributes:
        count: the number of rows, which may be 0.
        rows: for each output of the callback, an array of its rows.
        targets, keys: where rows are written, as in `dali_like.engine.worker.task.SlotView`.
    """

    def __init__(self) -> None:
        self.count = 0
        self.rows: list[NDArray[Any]] = []
        self.targets: list[Target] = []
        self.keys: list[Sequence[Any]] = []
        self._kinds: list[_Kind] = []
        self._latest: list[_Kind] = []

    def learn(self, outputs: Sequence[Any], most: int) -> None:
        """Note the shapes of a sample that was computed alone; make at most `most` rows for others like it.

        All rows must be unused.
        """
        if not all(array.__class__ is np.ndarray and not array.dtype.hasobject for array in outputs):
            self._latest = []
            return
        before, self._latest = self._latest, [(array.dtype, array.shape) for array in outputs]
        if before == self._latest and before != self._kinds:
            self._kinds = self._latest
            sizes = [math.prod(shape) * dtype.itemsize for dtype, shape in self._kinds]
            count = min(STACK_BYTES // max(sum(sizes), 1), most)
            self.count = count if count >= _LEAST_ROWS else 0
            begins = [0, *itertools.accumulate(align(self.count * nbytes) for nbytes in sizes)]
            memory = mmap.mmap(-1, max(begins[-1], 1))
            places = [*zip(begins, sizes, self._kinds, strict=False)]
            self.rows = [np.ndarray((self.count, *shape), dtype, memory, begin) for begin, _, (dtype, shape) in places]
            self.targets = [Target(memory, dtype, shape) for dtype, shape in self._kinds]
            self.keys = [
                [slice(begin + i * nbytes, begin + (i + 1) * nbytes) for i in range(self.count)]
                for begin, nbytes, _ in places
            ]

    def expect_gaps(self) -> None:
        """From now on, let NumPy copy the samples, since some are not contiguous."""
        self.targets = [Target(rows, rows.dtype, rows.shape[1:]) for rows in self.rows]
        self.keys = [range(self.count)] * len(self.rows)


class MisfitError(Exception):
    """The sample of this number in the batch has another shape or dtype than the rows of the staging area."""

    def __init__(self, sample: int, outputs: Sequence[Any]) -> None:
        super().__init__(sample)
        self.sample = sample
        self.outputs = outputs


class StagedTask:
    """A part of a task, as many samples as there are rows, whose samples go to a staging area.

    For the loops that write the samples of a `dali_like.engine.worker.task.Task`. Without rows, it has one sample.

    Args:
        task: the task.
        source: the source without operators.
        callback: its callback, perhaps measured.
        staging: the staging area.
        start: the first sample.
    """

    region = None

    def __init__(self, task: Task, source: Source, callback: Callable[[Any], Any], staging: Staging, start: int) -> None:
        self.source = source
        self.callback = callback
        self.view = staging
        self.targets = staging.targets if staging.count else [NO_TARGET] * source.output_count
        self.keys = staging.keys if staging.count else [range(1)] * source.output_count
        self.epoch = task.epoch
        self.iteration = task.iteration
        self.first = task.first
        self.lent: dict[Any, Any] = {}
        self.start = start
        self.stop = min(start + max(staging.count, 1), task.stop)

    def disentangle(self, i: int, outputs: Sequence[Any], source: Source) -> tuple[Any, ...]:
        """Return the outputs of a sample: callbacks get no memory here."""
        return tuple(outputs)

    def outside_writer(self) -> Callable[[int, int, NDArray[Any]], bool]:
        """Return a function that returns False: there is no other place than the row."""
        return lambda i, output, array: False

    def put_outputs(self, i: int, outputs: Sequence[Any], source: Source) -> None:
        """Refuse a sample that does not fit its row.

        Raises:
            MisfitError: always.
        """
        raise MisfitError(i, outputs)


class TaskResults:
    """Takes the results of operators for several samples of a task, as `dali_like.graph.execution.batch_runs.Results`.

    Args:
        task: the task.
        output: the number of the result.
        begin: the first sample.
    """

    def __init__(self, task: Task, output: int, begin: int) -> None:
        self._task, self._output, self._begin = task, output, begin

    def empty(self, i: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any] | None:
        """Return None: no sample is computed alone."""

    def put(self, i: int, sample: NDArray[Any]) -> None:
        """Store a sample."""
        self._task.put(self._begin + i, self._output, sample, self._task.source)

    def rows_of(self, begin: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any] | None:
        """Return the rows of a stack of samples, if samples of this shape and dtype have any."""
        return self._task.rows_of(self._output, self._begin + begin, shape[0], shape[1:], dtype)

    def put_all(self, begin: int, samples: NDArray[Any]) -> None:
        """Store a stack of samples."""
        self._task.put_all(self._output, samples, self._task.source, self._begin + begin)

    def elements(self, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return memory for the elements of all samples."""
        return self._task.describe_all().array((count,), dtype)

    def put_list(self, samples: SampleList) -> None:
        """Store all samples, copying them unless they lie in the memory of `elements`."""
        self._task.put_samples(self._output, samples, self._task.source, self._begin)
