"""The contract of kernels: functions that compute a whole batch of samples, of one shape or of different ones, at once.

A description names the kernel of an operator: see `dali_like.operators.machinery.description.Description`. A kernel gets
the addresses and shapes of all samples, and returns None where it does not serve the dtypes or arguments, or where a sample
is wrong: then the function of the operator computes, or raises the error. Otherwise results have the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from threading import get_ident
from time import monotonic_ns
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dali_like.common.kernel_library import address_of, kernels
from dali_like.engine.memory.protocol import DESCRIPTOR_WORDS, DTYPE_CODES, Word
from dali_like.engine.memory.ring import SampleList
from dali_like.graph.language.operator_interface import Array, OperatorCall

Table: TypeAlias = NDArray[np.int64]
#: Calls a function for each index below a number, within a second function, in one thread or several; see
#: `dali_like.common.work_sharing.for_each`.
ForEach: TypeAlias = Callable[[int, Callable[[int], None], Callable[[Callable[[], None]], None]], None]
#: The samples of a batch: a stack, or samples of different shapes.
Batch: TypeAlias = "Array | SampleList"
#: Results of different shapes start at multiples of this.
_ALIGNMENT = 64
_WORD_BYTES = 8
#: Parts of a batch that threads share: enough for some threads to end together, and few calls.
_MOST_PARTS = 8


class Samples(NamedTuple):
    """The samples of an input or of a result. Each is C-contiguous.

    Attributes:
        data: the samples; it keeps their memory.
        dtype: of all samples.
        addresses: of the first element of each.
        shapes: shape (samples, dimensions).
        shape: of all samples; None if the shapes differ.
    """

    data: Any
    dtype: np.dtype[Any]
    addresses: Table
    shapes: Table
    shape: tuple[int, ...] | None

    @property
    def row(self) -> int:
        """Numbers from the shape of one sample to that of the next."""
        return self.shapes.strides[0] // _WORD_BYTES

    @property
    def sizes(self) -> Table:
        """The number of elements of each sample."""
        sizes: Table = np.multiply.reduce(self.shapes, axis=1)
        return sizes

    @property
    def strides(self) -> Table:
        """The strides of each sample in bytes, with the shape of `shapes`."""
        strides = np.empty_like(self.shapes)
        if strides.shape[1]:
            strides[:, -1] = self.dtype.itemsize
            for axis in range(strides.shape[1] - 2, -1, -1):
                np.multiply(strides[:, axis + 1], self.shapes[:, axis + 1], out=strides[:, axis])
        return strides


def samples_of(data: Any, *, is_stack: bool) -> Samples | None:
    """Return the samples of an input; None if they are not contiguous, or of several kinds.

    Args:
        data: one array, or the samples of a batch.
        is_stack: whether an array is a stack, not one sample.
    """
    if isinstance(data, SampleList):
        return Samples(data, data.dtype, data.addresses, data.shapes, None)
    if isinstance(data, np.ndarray):
        stack = data if is_stack else data[np.newaxis]
        if not stack.flags.c_contiguous and not (len(stack) and stack[0, ...].flags.c_contiguous):
            return None
        count, *extents = stack.shape
        begin = address_of(stack)
        addresses = np.arange(begin, begin + count * stack.strides[0], stack.strides[0]) if stack.strides[0] else None
        shapes: Table = np.ndarray(
            (count, len(extents)), np.int64, np.array(extents or (0,), np.int64), strides=(0, _WORD_BYTES)
        )
        if addresses is None or len(addresses) != count:  # the same sample again and again
            addresses = np.full(count, begin)
        return Samples(data, stack.dtype, addresses, shapes, tuple(extents))
    arrays: Sequence[Array] = data
    first = arrays[0]
    for array in arrays:
        if not (isinstance(array, np.ndarray) and array.dtype == first.dtype and array.ndim == first.ndim):
            return None
        if not array.flags.c_contiguous:
            return None
    shapes = np.array([array.shape for array in arrays], np.int64).reshape(len(arrays), first.ndim)
    return Samples(data, first.dtype, np.array([address_of(array) for array in arrays], np.int64), shapes, None)


class Draws(NamedTuple):
    """Where the random numbers of samples begin; see `dali_like.graph.language.operator_random`.

    Attributes:
        key: two words.
        epoch: the epoch.
        positions: the ``idx_in_epoch`` of each sample.
    """

    key: NDArray[np.uint64]
    epoch: int
    positions: Table


class BatchCall:
    """One call of a kernel.

    Attributes:
        layouts: of a sample of each input, or empty.
        count: number of samples.
        others_ns: nanoseconds that other threads have worked for `share`.
    """

    __slots__ = ("_call", "_elements", "_for_each", "_is_stack", "count", "layouts", "others_ns")

    def __init__(
        self,
        call: OperatorCall,
        layouts: Sequence[str],
        count: int,
        *,
        is_stack: bool,
        elements: Callable[[int, np.dtype[Any]], Array] | None = None,
        for_each: ForEach | None = None,
    ) -> None:
        self.layouts = layouts
        self.others_ns = 0
        self._for_each = for_each
        self.count = count
        self._call = call
        self._is_stack = is_stack
        self._elements = elements

    @property
    def layout(self) -> str:
        """The layout of the first input."""
        return self.layouts[0]

    @property
    def image_limit_bytes(self) -> int:
        """The largest decoded sample."""
        return self._call.image_limit_bytes

    def share(self, work: Callable[[int, int], int | None]) -> int:
        """Do the work of all samples; in several threads if that is much.

        Args:
            work: does that of the samples from one number to another. It returns 0 or None, or a number if it has failed.

        Returns:
            The number that `work` returned for a failed sample; 0 if all succeeded.
        """
        if self._for_each is None:
            return work(0, self.count) or 0
        caller, failed, spent_ns = get_ident(), [0], [0]
        step = -(-self.count // _MOST_PARTS)

        def part(i: int) -> None:
            if status := work(i * step, min((i + 1) * step, self.count)):
                failed.append(status)

        def measured(all_of_it: Callable[[], None]) -> None:
            begin_ns = monotonic_ns()
            all_of_it()
            if get_ident() != caller:
                spent_ns.append(monotonic_ns() - begin_ns)

        self._for_each(-(-self.count // step), part, measured)
        self.others_ns += sum(spent_ns)
        return failed[-1]

    def draws(self) -> Draws:
        """Return where the random numbers of the samples begin."""
        key, epoch, positions = self._call.places_of_draws()
        return Draws(np.array(key, np.uint64), epoch, np.array(positions, np.int64))

    def place(self, shapes: Table | tuple[int, ...], dtype: Any) -> Samples:
        """Return memory for a result, uninitialized. A kernel returns its `data`.

        Args:
            shapes: of each sample, or the shape of all samples.
            dtype: of the samples.
        """
        dtype = np.dtype(dtype)
        if not isinstance(shapes, tuple):
            return self._place_ragged(shapes, dtype)
        extents = (self.count, *shapes) if self._is_stack else shapes
        made = samples_of(self._call.empty(extents, dtype), is_stack=self._is_stack)
        assert made is not None
        return made

    def place_rows(self, counts: Table, tail: tuple[int, ...], dtype: Any) -> tuple[Array, Batch]:
        """Return memory for results whose first axes differ, one sample behind the other, and the batch in it.

        Args:
            counts: the extents of the first axes.
            tail: the other extents.
            dtype: of the samples.
        """
        dtype, size = np.dtype(dtype), math.prod(tail)
        if (counts == counts[0]).all():
            made = self._call.empty((self.count, int(counts[0]), *tail), dtype)
            return made.reshape(-1, *tail), made
        ends = np.add.accumulate(counts)
        total = int(ends[-1])
        memory = np.empty(total * size, dtype) if self._elements is None else self._elements(total * size, dtype)
        table = np.zeros((self.count, DESCRIPTOR_WORDS), np.int64)
        table[:, Word.OFFSET] = (ends - counts) * (size * dtype.itemsize)
        table[:, Word.NBYTES] = counts * (size * dtype.itemsize)
        table[:, Word.DTYPE] = DTYPE_CODES[dtype]
        table[:, Word.NDIM] = 1 + len(tail)
        table[:, Word.SHAPE] = counts
        table[:, Word.SHAPE + 1 : Word.SHAPE + 1 + len(tail)] = tail
        return memory.reshape(total, *tail), SampleList.within(memory, address_of(memory), table)

    def lay_out(self, shapes: Table, dtype: np.dtype[Any]) -> Batch:
        """As `place`, without compiled loops. Returns the samples."""
        if (shapes == shapes[0]).all():
            made: Batch = self._call.empty((self.count, *shapes[0].tolist()), dtype)
            return made
        nbytes = np.multiply.reduce(shapes, axis=1) * dtype.itemsize
        steps = (nbytes + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
        ends, ndim = np.add.accumulate(steps), shapes.shape[1]
        count = int(ends[-1]) // dtype.itemsize
        memory = np.empty(count, dtype) if self._elements is None else self._elements(count, dtype)
        table = np.zeros((self.count, DESCRIPTOR_WORDS), np.int64)
        table[:, Word.OFFSET], table[:, Word.NBYTES] = ends - steps, nbytes
        table[:, Word.DTYPE], table[:, Word.NDIM] = DTYPE_CODES[dtype], ndim
        table[:, Word.SHAPE : Word.SHAPE + ndim] = shapes
        return SampleList.within(memory, address_of(memory), table)

    def part(self, samples: SampleList) -> SampleList:
        """Return samples that lie in an input: the same if the result is intermediate, otherwise a copy."""
        if self._elements is None:
            return samples
        memory = self._elements(samples.nbytes // samples.dtype.itemsize, samples.dtype)
        return samples.copy(memory.view(np.uint8))

    def _place_ragged(self, shapes: Table, dtype: np.dtype[Any]) -> Samples:
        count, ndim = shapes.shape
        nbytes = -1
        if shapes.strides[0]:  # otherwise one shape for all
            if ndim and shapes.strides[1] != _WORD_BYTES:
                shapes = shapes.copy()
            descriptors = np.empty((count, DESCRIPTOR_WORDS), np.int64)
            nbytes = kernels().lay_out(
                count,
                ndim,
                dtype.itemsize,
                DTYPE_CODES[dtype],
                _ALIGNMENT,
                address_of(shapes),
                shapes.strides[0] // _WORD_BYTES,
                address_of(descriptors),
                DESCRIPTOR_WORDS,
            )
        if nbytes < 0:
            return self.place(tuple(shapes[0].tolist()), dtype)
        size = nbytes // dtype.itemsize
        memory = np.empty(size, dtype) if self._elements is None else self._elements(size, dtype)
        made = SampleList.within(memory, address_of(memory), descriptors)
        return Samples(made, dtype, made.addresses, shapes, None)
