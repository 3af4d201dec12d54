"""Sources in the main process whose samples go to a GPU, or are there already.

The calling thread computes them, as for every source in the main process, but the results bypass the slots. Arrays on
the GPU are copied as one batch when all samples are complete, so until then each sample needs an array of its own.
Arrays on the CPU are copied as the source returns them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.common.foreign_errors import add_note
from dali_like.common.hooks import InlineHooks
from dali_like.common.interrupts import interruptible
from dali_like.device.copier import Copier
from dali_like.device.cuda_streams import source_stream
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.memory.protocol import DTYPE_CODES, Status
from dali_like.engine.memory.slot_layout import OutputSchema
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.batch import Batch, position_note, result_of
from dali_like.engine.pool.inline_runner import InlineRunner
from dali_like.engine.worker.meters import Interval, Reading
from dali_like.engine.worker.parts import Part, PartReport, report_of
from dali_like.engine.worker.source import (
    IN_BATCH,
    LastBatch,
    Source,
    SourceType,
    as_array,
    check_array,
    heed_layout,
    is_on_gpu,
    kind_of_samples,
)
from dali_like.engine.worker.task import NO_TARGET
from dali_like.errors import ArgumentTypeError, ClosedError, DaliLikeError, OutOfMemoryError, SampleTypeError
from dali_like.sources.external_source import ExternalSource
from dali_like.types import SampleInfo

#: One output of all samples: a list of samples, or one array.
_Column = list[Any] | NDArray[Any] | Any


class CollectedBatch:
    """Batch that collects the results of a source; implements the interface of `dali_like.engine.worker.task.Task`."""

    #: As in a task whose samples all have descriptors, so that no sample goes to a row.
    region: Any = SimpleNamespace(used=0, close=lambda: None)
    has_rows = True
    view = SimpleNamespace(rows=[None])

    def __init__(self, source: Source, key: BatchKey) -> None:
        self.source = source
        self.callback = source.callback
        self.epoch, self.iteration, self.first = key.epoch, key.iteration, key.first_sample
        self.start, self.stop = 0, key.size
        self.lent: dict[Any, Any] = {}
        self.columns: list[_Column] = [[] for _ in range(source.output_count)]
        self.targets = [NO_TARGET] * source.output_count
        self.keys: list[Sequence[Any]] = [range(key.size)] * source.output_count
        self.number, self.request = 0, key.request
        self.found: list[int] = []
        self.place = 0
        self.report: PartReport | None = None

    def end_part(self, part: Part) -> None:
        """End the only part of the batch; see `dali_like.engine.worker.parts`."""
        self.report = report_of(part, self.found, in_rows=False)

    def put(self, i: int, output: int, value: Any, source: Source) -> None:
        """Store one output of sample `i`."""
        if source.type is SourceType.PARTS:
            i = len(self.found)  # places before it may be empty
        column = self.columns[output]
        if not isinstance(column, list):
            column = self.columns[output] = []
        if is_on_gpu(value):
            heed_layout(value, source, output)
        else:
            value = np.array(as_array(value, source, output))
        column[i:] = [value]

    def put_outputs(self, i: int, outputs: Sequence[Any], source: Source) -> None:
        """Store all outputs of sample `i`."""
        for output, value in enumerate(outputs):
            self.put(i, output, value, source)

    def writer(self) -> Callable[[int, Sequence[Any]], bool]:
        """Return a function that returns False: `put` stores samples."""
        return lambda i, arrays: False

    def outside_writer(self) -> Callable[[int, int, Any], bool]:
        """Return a function that returns False: `put` stores samples."""
        return lambda i, output, array: False

    def put_list(self, output: int, values: Sequence[Any], source: Source, note: Callable[[int], None]) -> None:
        """Store one output of all samples."""
        for i, value in enumerate(values, self.start):
            note(i)
            self.put(i, output, value, source)

    def put_all(self, output: int, samples: Any, source: Source) -> None:
        """Store one output of all samples, as one array."""
        self.columns[output] = samples if is_on_gpu(samples) else samples.copy()

    def span(self) -> Interval:
        """Return the interval of samples in the batch."""
        return Interval(self.epoch, self.iteration, self.first, self.stop)

    def end_at(self, stop: int) -> None:
        """Shorten the batch to `stop` samples."""
        self.stop = stop

    def describe_all(self) -> Any:
        """Do nothing: samples need no descriptors."""
        return self.region

    def empty(self, info: SampleInfo, output: int, shape: Any, dtype: Any) -> None:
        """Return None: the batch has no memory to create samples in."""

    def end(self) -> None:
        """Do nothing: no memory was lent."""


class GpuSourcePool:
    """Computes batches in the calling thread, on submission. See `dali_like.engine.pool.base.Pool`.

    Args:
        externals: the sources, each with its engine counterpart.
        capacity: the largest batch, in samples.
        copier: copies samples to the GPU.

    Attributes:
        hooks: of a trace; none by default.
    """

    def __init__(
        self,
        externals: Sequence[tuple[ExternalSource, Source]],
        capacity: int,
        space: SharedSpace,
        copier: Copier,
    ) -> None:
        self._externals = externals
        self._expected = [list(external.declared) for external, _ in externals]
        self._capacity = capacity
        self._copier = copier
        self._runner = InlineRunner(space, [source for _, source in externals])
        #: Computed batches that have not been copied, because GPU memory was short.
        self._uncopied: dict[Batch, CollectedBatch] = {}
        self._closed = False
        self.hooks = InlineHooks()

    @property
    def num_replaced(self) -> int:
        """Number of samples replaced according to ``on_error``."""
        return self._runner.num_replaced

    @property
    def readings(self) -> list[Reading]:
        """Measured times of the sources."""
        return self._runner.readings

    def submit(self, key: BatchKey) -> Batch:
        if self._closed:
            raise ClosedError("the pipeline has been closed")
        if self.hooks.compute is None:
            return self._compute(key)
        batch: Batch = self.hooks.compute(self._compute, key)
        return batch

    def _compute(self, key: BatchKey) -> Batch:
        self._runner.set_up()
        batch = Batch(key)
        source = self._externals[key.source][1]
        task = CollectedBatch(source, key)
        with interruptible():
            status, value = self._runner.compute(task, self._runner.meters[key.source])
        if status is Status.STOPPED or (not task.stop and source.ends_short):
            batch.outcome = StopIteration()
        elif status is Status.FAILED:
            batch.outcome = self._runner.take_error(batch, value)
        else:
            batch.size = task.stop
            batch.is_last = task.stop < key.size and source.ends_short
            if task.report is not None:
                batch.size, batch.reports = len(task.found), [task.report]
            self._uncopied[batch] = task
            with contextlib.suppress(OutOfMemoryError):  # `wait` tries again, and raises it then
                self._finish(batch)
        return batch

    def poll(self) -> None:
        pass

    def wait(self, batch: Batch) -> Sequence[Any]:
        if batch in self._uncopied:
            self._finish(batch)
        return result_of(batch)

    def cancel(self, batch: Batch) -> None:
        self._uncopied.pop(batch, None)
        batch.outcome = None
        batch.cancelled = True

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._uncopied.clear()
        self._runner.close()

    def _finish(self, batch: Batch) -> None:
        """Copy a batch to the GPU and set its outcome.

        Raises:
            OutOfMemoryError: GPU memory is short. The call can be repeated.
        """
        number, task = batch.key.source, self._uncopied[batch]
        try:
            batch.outcome = [self._collected(number, output, column) for output, column in enumerate(task.columns)]
        except OutOfMemoryError:
            raise
        except DaliLikeError as error:
            add_note(error, position_note(batch, task.source, 0))
            batch.outcome = error
        del self._uncopied[batch]

    def _collected(self, number: int, output: int, column: _Column) -> Any:
        external, source = self._externals[number]
        if isinstance(column, list) and source.last_batch is LastBatch.FILL:
            column = column + column[-1:] * (self._capacity - len(column))
        if not len(column):
            return column
        first = column[0] if isinstance(column, list) else column
        if is_on_gpu(first):
            samples: Any = import_gpu_arrays(column, external, self._copier, output)
        elif isinstance(column, list) and any(map(is_on_gpu, column)):
            raise SampleTypeError(
                f"{source.name} {source.verb} arrays on the CPU and on a GPU in one batch of output {output}; return all "
                "samples of a batch from the same place"
            )
        else:
            samples = column
        expected = self._expected[number]
        expected[output] = check_samples(samples, expected[output], source, output)
        return samples


def check_samples(samples: Any, expected: OutputSchema, source: Source, output: int) -> OutputSchema:
    """Check dtype and number of dimensions of a batch, and return those as the schema to expect from now on.

    Args:
        samples: a list of samples, or one array; on the CPU or the GPU.
        expected: as declared, or seen before.

    Raises:
        DtypeMismatchError, NdimMismatchError: a sample differs from `expected`, or from the other samples.
    """
    dtype, ndim = kind_of_samples(samples)
    for sample in samples if isinstance(samples, list) else ():
        check_array(sample.dtype, len(sample.shape), DTYPE_CODES[dtype], ndim, source, output, seen=IN_BATCH)
    check_array(dtype, ndim, expected.dtype, expected.ndim, source, output)
    return OutputSchema(DTYPE_CODES[dtype], ndim)


def import_gpu_arrays(
    column: Any,
    external: ExternalSource,
    copier: Copier,
    output: int = 0,
    cuda_stream: Any = None,
    use_copy_kernel: bool | None = None,
) -> Any:
    """Return arrays of the user's on the GPU as samples of a batch.

    Args:
        column: the samples, or one array of all samples.
        external: the source or input; its options apply.
        cuda_stream, use_copy_kernel: override the options of the source; see ``fn.external_source``.

    Raises:
        SampleTypeError: an array is not on this GPU, or has an unsupported dtype.
        OutOfMemoryError: GPU memory is short.
    """
    options = external.options
    is_dense = not isinstance(column, (list, tuple))
    try:
        samples = copier.take_in(
            [column] if is_dense else column,
            is_dense=is_dense,
            stream=source_stream(options["cuda_stream"] if cuda_stream is None else cuda_stream),
            copies=not options["no_copy"],
            by_kernel=bool(options["use_copy_kernel"] if use_copy_kernel is None else use_copy_kernel),
        )
    except ArgumentTypeError as error:
        raise SampleTypeError(f"{external.name}, output {output}: {error}") from error
    dtype, _ = kind_of_samples(samples)
    if dtype not in DTYPE_CODES:
        raise SampleTypeError(f"{external.name}, output {output}: tensors cannot have the dtype {dtype}")
    return samples
