"""Sources in the main process whose data is wanted on a GPU, and may be there already.

They are called as all others are, but what they return does not go through slots. Arrays on the GPU are copied there, as one
batch, when all samples of the batch have been made; each sample has to be an array of its own until then. Arrays on the CPU
are copied when they have been returned.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.common.interrupts import interruptible
from dali_like.device.copier import Copier
from dali_like.device.cuda_streams import source_stream
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.memory.protocol import DTYPE_CODES, Status
from dali_like.engine.memory.slot_layout import OutputSchema
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.base import result_of
from dali_like.engine.pool.batch import Batch, position_note
from dali_like.engine.pool.inline_runner import InlineRunner
from dali_like.engine.worker.exceptions import add_note
from dali_like.engine.worker.meters import Interval, Reading
from dali_like.engine.worker.source import LastBatch, Source, as_array, check_array, heed_layout, is_on_gpu, kind_of_samples
from dali_like.errors import ArgumentTypeError, ClosedError, DaliLikeError, OutOfMemoryError, SampleTypeError
from dali_like.sources.external_source import ExternalSource
from dali_like.types import SampleInfo

#: The samples of one output; or one array of all of them.
_Column = list[Any] | NDArray[Any] | Any


class Gathering:
    """A batch while a source makes it; to who computes it, a task: see `dali_like.engine.worker.task.Task`."""

    #: As if all samples had been described: none goes to a row.
    region: Any = SimpleNamespace(used=0)
    has_rows = True

    def __init__(self, source: Source, key: BatchKey) -> None:
        self.source = source
        self.callback = source.callback
        self.epoch, self.iteration, self.first = key.epoch, key.iteration, key.first_sample
        self.start, self.stop = 0, key.size
        self.lent: dict[Any, Any] = {}
        self.columns: list[_Column] = [[] for _ in range(source.output_count)]

    def put(self, i: int, output: int, value: Any, source: Source) -> None:
        """Take one output of sample `i`."""
        column = self.columns[output]
        if not isinstance(column, list):
            column = self.columns[output] = []
        if is_on_gpu(value):
            heed_layout(value, source, output)
        else:
            value = np.array(as_array(value, source, output))
        column[i:] = [value]

    def put_arrays(self, i: int, arrays: Sequence[Any]) -> bool:
        """Samples come here one output at a time."""
        return False

    def put_all(self, output: int, samples: Any, source: Source) -> None:
        """Take one output of all samples, as one array."""
        self.columns[output] = samples if is_on_gpu(samples) else samples.copy()

    def span(self) -> Interval:
        """Which samples it consists of."""
        return Interval(self.epoch, self.iteration, self.first, self.stop)

    def end_at(self, stop: int) -> None:
        """Leave it at fewer samples."""
        self.stop = stop

    def describe_all(self) -> Any:
        """Nothing needs a description."""
        return self.region

    def empty(self, info: SampleInfo, output: int, shape: Any, dtype: Any) -> None:
        """There is no place to make samples in."""

    def end(self) -> None:
        """Nothing was lent."""


class GpuSourcePool:
    """Computes batches in the calling thread, when they are submitted. See `dali_like.engine.pool.base.Pool`.

    Args:
        externals: the sources; and what the engine calls of each.
        capacity: the largest batch.
        copier: copies them to the GPU.
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
        #: What has been made, and has not found room on the GPU.
        self._unplaced: dict[Batch, Gathering] = {}
        self._closed = False

    @property
    def num_replaced(self) -> int:
        """How many samples were replaced by what a source's ``on_error`` says."""
        return self._runner.num_replaced

    @property
    def readings(self) -> list[Reading]:
        """How long the sources have taken."""
        return self._runner.readings

    def submit(self, key: BatchKey) -> Batch:
        if self._closed:
            raise ClosedError("the pipeline has been closed")
        self._runner.set_up()
        batch = Batch(key)
        source = self._externals[key.source][1]
        task = Gathering(source, key)
        with interruptible():
            status, value = self._runner.compute(task, self._runner.meters[key.source])
        if status is Status.STOPPED or (not task.stop and not source.batch):
            batch.outcome = StopIteration()
        elif status is Status.FAILED:
            batch.outcome = self._runner.take_error(batch, value)
        else:
            batch.size = task.stop
            batch.is_last = task.stop < key.size and not source.batch
            self._unplaced[batch] = task
            with contextlib.suppress(OutOfMemoryError):  # to be raised when the batch is asked for, if there is none then
                self._place(batch)
        return batch

    def poll(self) -> None:
        pass

    def wait(self, batch: Batch) -> Sequence[Any]:
        if batch in self._unplaced:
            self._place(batch)
        return result_of(batch)

    def cancel(self, batch: Batch) -> None:
        self._unplaced.pop(batch, None)
        batch.outcome = None
        batch.cancelled = True

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._unplaced.clear()
        self._runner.close()

    def _place(self, batch: Batch) -> None:
        """Put a batch together.

        Raises:
            OutOfMemoryError: there is no room for it on the GPU. It can be tried again.
        """
        number, task = batch.key.source, self._unplaced[batch]
        try:
            batch.outcome = [self._placed(number, output, column) for output, column in enumerate(task.columns)]
        except OutOfMemoryError:
            raise
        except DaliLikeError as error:
            add_note(error, position_note(batch, task.source, 0))
            batch.outcome = error
        del self._unplaced[batch]

    def _placed(self, number: int, output: int, column: _Column) -> Any:
        external, source = self._externals[number]
        if isinstance(column, list) and source.last_batch is LastBatch.FILL:
            column = column + column[-1:] * (self._capacity - len(column))
        if not len(column):
            return column
        first = column[0] if isinstance(column, list) else column
        if is_on_gpu(first):
            samples: Any = take_in(column, external, self._copier, output)
        elif isinstance(column, list) and any(map(is_on_gpu, column)):
            raise SampleTypeError(
                f"{source.name} {source.verb} arrays on the CPU and on a GPU in one batch of output {output}"
            )
        else:
            samples = column
        self._check(number, output, samples)
        return samples

    def _check(self, number: int, output: int, samples: Any) -> None:
        """Hold a batch against what was declared, or seen before.

        Raises:
            DtypeMismatchError, NdimMismatchError: it is something else.
        """
        source, expected = self._externals[number][1], self._expected[number]
        dtype, ndim = kind_of_samples(samples)
        for sample in samples if isinstance(samples, list) else ():
            check_array(sample.dtype, len(sample.shape), DTYPE_CODES[dtype], ndim, source, output)
        check_array(dtype, ndim, expected[output].dtype, expected[output].ndim, source, output)
        expected[output] = OutputSchema(DTYPE_CODES[dtype], ndim)


def take_in(
    column: Any,
    external: ExternalSource,
    copier: Copier,
    output: int = 0,
    cuda_stream: Any = None,
    use_copy_kernel: bool | None = None,
) -> Any:
    """Arrays on the GPU, as samples of a batch.

    Args:
        column: the samples, or one array of all of them.
        external: of the source, or of the input.
        cuda_stream, use_copy_kernel: in the place of what the source has been told; see ``fn.external_source``.

    Raises:
        SampleTypeError: one of them is not on this GPU.
        OutOfMemoryError: there is no room for them.
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
