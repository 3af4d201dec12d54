"""Apply programs to the samples of a batch, for pipelines, debug mode, dynamic mode and operators in datasets.

Runs in the process of the caller, in the calling thread and in others. Where the samples of a batch have equal shapes, a
program runs over stacks of `STACK_BYTES`, and threads share the stacks; otherwise they share the samples. Operators on
batches get all samples at once.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from operator import call
from time import monotonic_ns
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dali_like.common.kernel_library import kernels
from dali_like.common.work_sharing import one_by_one
from dali_like.engine.memory.ring import SampleList
from dali_like.engine.worker.staging import STACK_BYTES
from dali_like.graph.execution.program import BatchPlaces, Program
from dali_like.graph.language.batch_calls import ForEach
from dali_like.graph.language.operator_interface import Array
from dali_like.types import SampleInfo

#: Gaps between samples are computed, too: at most this many bytes for each byte of the samples.
_MOST_GAPS = 1.5
#: Samples of more bytes than this are shared among threads, one by one.
_MOST_TOGETHER_BYTES = STACK_BYTES // 2


class BatchId(NamedTuple):
    """The place of a batch in its epoch."""

    epoch: int
    iteration: int
    first: int  # idx_in_epoch of its first sample
    stride: int = 1  # from the idx_in_epoch of one sample to the next
    offset: int = 0  # idx_in_batch of its first sample

    def info(self, i: int) -> SampleInfo:
        """Return the SampleInfo of the `i`-th sample."""
        return SampleInfo(self.first + i * self.stride, self.offset + i, self.iteration, self.epoch)


class Results(Protocol):
    """Takes the results for one output of a batch, in any order and from any thread."""

    def empty(self, i: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:
        """Return uninitialized memory for sample `i`; None: the operator takes memory of its own."""

    def put(self, i: int, sample: Array) -> None:
        """Store sample `i`."""

    def rows_of(self, begin: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:
        """Return uninitialized memory for a stack of samples, from sample `begin` on; None as for `empty`."""

    def put_all(self, begin: int, samples: Array) -> None:
        """Store a stack of samples, from sample `begin` on."""

    def elements(self, count: int, dtype: np.dtype[Any]) -> Array:
        """Return uninitialized memory for the elements of all samples, in one dimension."""

    def put_list(self, samples: SampleList) -> None:
        """Store all samples, which lie in the memory of `elements`."""


#: Takes the nanoseconds of each step of a program in one thread, and when they began.
NoteTimes = Callable[[Sequence[int], int], None]


def _raise(i: int, error: Exception) -> None:
    raise error


def run_program(
    program: Program,
    inputs: Sequence[Any],
    size: int,
    batch_id: BatchId,
    results: Sequence[Results],
    *,
    for_each: ForEach = one_by_one,
    fail: Callable[[int, Exception], None] = _raise,
    note_times: NoteTimes | None = None,
) -> None:
    """Run a program over a batch.

    Args:
        inputs: the samples of each input: one array, or a sequence of arrays.
        results: for each export of the program.
        for_each: shares the work among threads.
        fail: called within the handling of the exception of a sample, which it may raise again.
        note_times: called once for each thread. None: nothing is measured.
    """
    if not program.per_sample:
        _run_on_batch(program, inputs, size, batch_id, results, note_times)
        return
    count = _stack_size(inputs, size, views=program.views) if program.stacks else 1
    if count >= size > 1:
        if _run_as_one(program, inputs, size, batch_id, results, note_times):
            return
        count = 1
    by_kernels = (count == 1 or program.for_large) and _has_kernels(program)
    if by_kernels and run_by_kernels(program, inputs, size, batch_id, results, for_each, note_times):
        return
    local = threading.local()  # of each thread: times_ns, and the functions that compute samples

    def run_stack(number: int) -> None:
        begin, stop = number * count, min((number + 1) * count, size)
        try:
            stacks = program.run_stack(
                [samples[begin:stop] for samples in inputs],
                batch_id.info(begin),
                count=stop - begin,
                stride=batch_id.stride,
                empty=None if program.views else lambda output, shape, dtype: results[output].rows_of(begin, shape, dtype),
                times_ns=local.times_ns,
            )
        except Exception:  # the sample is not known
            for i in range(begin, stop):
                run(i)
            return
        for output, stack in zip(results, stacks, strict=True):
            output.put_all(begin, stack)

    def run(i: int) -> None:
        runner = getattr(local, "runner", None) or begin_samples()
        local.number = i
        try:
            made = runner([column[i] for column in local.columns], batch_id.info(i))
        except Exception as error:
            fail(i, error)
            return
        for output, result in zip(results, made, strict=True):
            if result is not None:
                output.put(i, result)

    def begin_samples() -> Callable[[Sequence[Any], SampleInfo], tuple[Any, ...]]:
        local.columns = [arrays_of(samples) for samples in inputs]
        empty = None if program.views else lambda output, shape, dtype: results[output].empty(local.number, shape, dtype)
        runner = local.runner = program.runner(empty, local.times_ns)
        return runner

    def measured(work: Callable[[], None]) -> None:
        times_ns = local.times_ns = None if note_times is None else [0] * len(program.steps)
        begin_ns = monotonic_ns()
        try:
            work()
        finally:
            local.__dict__.clear()  # ends a cycle of references, which would keep the memory of the batch
        if note_times is not None and times_ns is not None:
            note_times(times_ns, begin_ns)

    is_packed = count == 1 and (program.packs or program.rows)
    if is_packed and _run_packed(program, inputs, batch_id, results, for_each, measured, local):
        return
    if count > 1:
        for_each(-(-size // count), run_stack, measured)
    else:
        for_each(size, run, measured)


def _run_as_one(
    program: Program,
    inputs: Sequence[Any],
    size: int,
    batch_id: BatchId,
    results: Sequence[Results],
    note_times: NoteTimes | None,
) -> bool:
    """Run a program over all samples of a batch as one stack; see `run_program`.

    Returns:
        Whether there are results. Otherwise each sample must be computed alone.
    """
    times_ns, begin_ns = (None, 0) if note_times is None else ([0] * len(program.steps), monotonic_ns())
    try:
        stacks = program.run_stack(
            inputs,
            batch_id.info(0),
            count=size,
            stride=batch_id.stride,
            empty=None if program.views else lambda output, shape, dtype: results[output].rows_of(0, shape, dtype),
            times_ns=times_ns,
        )
    except Exception:  # the sample is not known
        return False
    for output, stack in zip(results, stacks, strict=True):
        output.put_all(0, stack)
    if note_times is not None and times_ns is not None:
        note_times(times_ns, begin_ns)
    return True


def works_together(program: Program) -> bool:
    """Return whether `run_together` may have results."""
    return bool(program.packs) or program.rows or _has_kernels(program)


def run_together(
    program: Program,
    inputs: Sequence[SampleList],
    size: int,
    batch_id: BatchId,
    results: Sequence[Results],
    times_ns: list[int] | None = None,
) -> bool:
    """Run a program over samples of different shapes at once, in the calling thread; see `run_program`.

    Args:
        times_ns: nanoseconds of each step, to add to.

    Returns:
        Whether there are results. Otherwise each sample must be computed alone.
    """

    def note_times(more_ns: Sequence[int], begin_ns: int) -> None:
        assert times_ns is not None
        times_ns[:] = map(sum, zip(times_ns, more_ns, strict=True))

    note = None if times_ns is None else note_times
    if _has_kernels(program) and run_by_kernels(program, inputs, size, batch_id, results, one_by_one, note):
        return True
    if not (program.packs or program.rows):
        return False
    return _run_packed(program, inputs, batch_id, results, one_by_one, call, SimpleNamespace(times_ns=times_ns))


def _has_kernels(program: Program) -> bool:
    return program.has_kernels and not (program.compiled and kernels() is None)


def run_by_kernels(
    program: Program,
    inputs: Sequence[Any],
    size: int,
    batch_id: BatchId,
    results: Sequence[Results],
    for_each: ForEach,
    note_times: NoteTimes | None,
) -> bool:
    """Run a program with compiled loops over all samples of a batch at once, of any shapes; see `run_program`.

    Returns:
        Whether there are results. Otherwise each sample must be computed alone.
    """
    nbytes = [0 if i in program.unread else _nbytes_of(samples) for i, samples in enumerate(inputs)]
    if None in nbytes:
        return False
    total = sum(nbytes)
    if total > _MOST_TOGETHER_BYTES * size and not (program.views or program.for_large):
        return False
    shares = total > STACK_BYTES and program.for_large
    times_ns, begin_ns = (None, 0) if note_times is None else ([0] * len(program.steps), monotonic_ns())
    memory = None
    if not program.views:
        memory = BatchPlaces(
            lambda output, shape, dtype: results[output].rows_of(0, shape, dtype),
            lambda output, count, dtype: results[output].elements(count, dtype),
        )
    try:
        made = program.run_batch(
            inputs,
            batch_id.info(0),
            count=size,
            stride=batch_id.stride,
            memory=memory,
            for_each=for_each if shares else None,
            times_ns=times_ns,
        )
    except Exception:  # the sample is not known
        return False
    if made is None:
        return False
    for output, data in zip(results, made, strict=True):
        if isinstance(data, SampleList):
            output.put_list(data)
        else:
            output.put_all(0, data)
    if note_times is not None and times_ns is not None:
        note_times(times_ns, begin_ns)
    return True


def _nbytes_of(samples: Any) -> Any:
    """Return the size of the samples of a batch; None for samples that are not arrays."""
    if isinstance(samples, (np.ndarray, SampleList)):
        return samples.nbytes
    return sum(array.nbytes for array in samples) if all(isinstance(array, np.ndarray) for array in samples) else None


def _run_packed(
    program: Program,
    inputs: Sequence[Any],
    batch_id: BatchId,
    results: Sequence[Results],
    for_each: ForEach,
    measured: Callable[[Callable[[], None]], None],
    local: Any,
) -> bool:
    """Run an elementwise or rowwise program over samples of different shapes, as one piece of memory; see `run_program`.

    Returns:
        Whether there are results. Otherwise each sample must be computed alone.
    """
    if len(inputs) != 1 or not isinstance(samples := inputs[0], SampleList) or not samples.is_ragged:
        return False
    packed = _elements_of(samples) if program.packs else _vectors_of(samples)
    if packed is None or not len(packed):
        return False
    around = (1,) * (samples.ndim - 2) if program.rows else ()
    block = max(STACK_BYTES * len(packed) // packed.nbytes, 1)
    places: list[Array | None] = [None] * len(results)
    adding = threading.Lock()
    fits = True

    def run_block(number: int) -> None:
        nonlocal fits
        part = slice(number * block, (number + 1) * block)
        given = packed[part]
        shape = (*around, *given.shape)

        def empty(output: int, wanted: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:
            if wanted[: len(around) + 1] != shape[: len(around) + 1]:
                return None
            return place_of(output, wanted[len(around) + 1 :], dtype)[part].reshape(wanted)

        made = None
        if fits:
            made = program.run_packed([given.reshape(shape)], [samples.ndim], batch_id.info(0), empty, local.times_ns)
        if made is None:
            fits = False
            return
        for output, result in enumerate(made):
            tail = result.shape[len(around) + 1 :]
            # NumPy skips the copy if both are the same memory.
            place_of(output, tail, result.dtype)[part] = result.reshape(len(given), *tail)

    def place_of(output: int, tail: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        with adding:
            place = places[output]
            if place is None:
                memory = results[output].elements(len(packed) * math.prod(tail), dtype)
                place = places[output] = memory.reshape(len(packed), *tail)
        return place

    try:
        for_each(-(-len(packed) // block), run_block, measured)
    except Exception:  # the sample is not known
        fits = False
    if not fits:
        return False
    for output, place in zip(results, places, strict=True):
        assert place is not None
        output.put_list(samples.rows_in(place) if program.rows else samples.placed_in(place))
    return True


def _elements_of(samples: SampleList) -> Array | None:
    """Return the memory around all samples, as elements; None if most of it is something else."""
    elements = samples.elements
    return None if elements.nbytes > _MOST_GAPS * samples.nbytes else elements


def _vectors_of(samples: SampleList) -> Array | None:
    """Return the vectors along the last axis of all samples; None if their lengths differ, or if a copy is not worth it."""
    if samples.ndim < 2 or 2 * samples.nbytes > STACK_BYTES * len(samples):
        return None
    arrays = samples.arrays()
    length = arrays[0].shape[-1]
    if not length or {array.shape[-1] for array in arrays} != {length}:
        return None
    vectors: Array = np.concatenate([array.reshape(-1, length) for array in arrays])
    return vectors


def _run_on_batch(
    program: Program,
    inputs: Sequence[Any],
    size: int,
    batch_id: BatchId,
    results: Sequence[Results],
    note_times: NoteTimes | None,
) -> None:
    """Compute an operator that needs a whole batch: the samples that take its branch. See `run_program`."""
    (step,) = program.steps
    columns = [*inputs, *[[array] * size for array in program.constants]]
    chosen: Sequence[int] = range(size)
    if step.scope:
        rows = [[sample_of(samples, i) for samples in columns] for i in range(size)]
        chosen = [i for i, row in enumerate(rows) if step.applies(row)]
        if not chosen:
            return
        registers: list[Any] = [[rows[i][column] for i in chosen] for column in range(len(columns))]
    else:
        registers = [[*map(np.asarray, data)] if isinstance(data, np.ndarray) else data for data in columns]
    registers += [None] * (program.num_registers - len(registers))
    times_ns, begin_ns = [0], monotonic_ns()
    try:
        step.run_timed(
            registers,
            batch_id.info(0),
            None if step.scope else lambda output, shape, dtype: results[output].rows_of(0, shape, dtype),
            len(chosen),
            times_ns,
        )
    finally:
        if note_times is not None:
            note_times(times_ns, begin_ns)
    for output, register in zip(results, program.exports, strict=True):
        made = registers[register]
        if not step.scope and (stack := _stack_of(made, output)) is not None:
            output.put_all(0, stack)
            continue
        for i, result in zip(chosen, made, strict=True):
            output.put(i, np.asarray(result))


def _stack_of(made: Any, output: Results) -> Array | None:
    """Return the results for all samples of a batch as one array if they are alike."""
    if isinstance(made, np.ndarray):
        return made
    first = made[0]
    if {*map(type, made)} != {np.ndarray} or len({(each.shape, each.dtype) for each in made}) > 1:
        return None
    rows = output.rows_of(0, (len(made), *first.shape), first.dtype)
    if rows is not None and first.ndim and rows.flags.c_contiguous:
        np.concatenate(made, out=rows.reshape(len(made) * len(first), *first.shape[1:]))
    elif rows is not None:
        rows[...] = made
    return rows


def arrays_of(samples: Any) -> Sequence[Any]:
    """Return the samples of a batch, each as an array even if it has no dimensions."""
    if isinstance(samples, np.ndarray):
        return [*samples] if samples.ndim > 1 else [samples[i, ...] for i in range(len(samples))]
    return samples.arrays() if isinstance(samples, SampleList) else samples


def sample_of(samples: Sequence[Any] | NDArray[Any], i: int) -> Any:
    """Return one sample, as an array even if it has no dimensions."""
    return samples[i, ...] if isinstance(samples, np.ndarray) else samples[i]


def _stack_size(inputs: Sequence[Any], size: int, *, views: bool) -> int:
    """Return the number of samples that operators compute at once; 1 if the samples are not alike."""
    if size < 2 or not all(isinstance(samples, np.ndarray) for samples in inputs):
        return 1
    if views:
        return size
    nbytes = sum(int(samples.nbytes) for samples in inputs) // size
    return max(min(STACK_BYTES // max(nbytes, 1), size), 1)
