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

from dali_like.engine.memory.protocol import DTYPE_CODES, align
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
    def packs(self) -> tuple[int, ...]:
        """For each result, the output of the callback with the same shape, if the operators are elementwise; else empty."""

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

    def compute_packed(
        self, packed: Sequence[NDArray[Any]], first: Sequence[Any], call: CallContext, info: SampleInfo
    ) -> Sequence[NDArray[Any]] | None:
        """Return the results for several samples of any shapes, if the operators are elementwise.

        An error says nothing about its sample, and None that the samples must be computed alone.

        Args:
            packed: for each output of the callback, the elements of all samples, one after another, in one dimension.
            first: the outputs for the first sample. The others have the same dtypes and numbers of dimensions.
            call, info: as for `compute_stack`.
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
