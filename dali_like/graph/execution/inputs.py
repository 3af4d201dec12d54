"""Inputs: external sources without a source, which the user feeds with batches.

Each input has a queue of batches in the main process; every iteration takes one. Any thread may feed, even while
another thread waits for a batch.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dali_like.common.interrupts import POLL_INTERVAL_S, check_interrupts
from dali_like.device.copier import Copier
from dali_like.device.device_array import DeviceArray, lies_on_gpu
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.memory.protocol import DTYPE_CODES
from dali_like.engine.memory.slot_layout import OutputSchema
from dali_like.engine.pool.batch import Batch, Output
from dali_like.engine.worker.source import as_array, as_columns, is_on_gpu
from dali_like.errors import ClosedError, LayoutMismatchError, NdimMismatchError, NoInputError
from dali_like.graph.execution.gpu_sources import check_samples, import_gpu_arrays
from dali_like.sources.external_source import Fed
from dali_like.tensors import TensorCPU, TensorListCPU
from dali_like.tensors.gpu_tensor_lists import TensorListGPU
from dali_like.tensors.gpu_tensors import TensorGPU

#: Value that the user feeds to an input, before the input splits it.
_ENCODED = OutputSchema(DTYPE_CODES[np.dtype(np.uint8)], 1)


class CheckedBatch(NamedTuple):
    """A batch that has passed `InputPool.check`.

    Attributes:
        output: the samples.
        layout: as given, or that of the tensors; empty if unknown.
        schema: dtype and ndim of the samples; None if there are no samples.
    """

    output: Output
    layout: str
    schema: OutputSchema | None


class InputPool:
    """Batches fed to one input. See `dali_like.engine.pool.base.Pool`.

    Args:
        external: the options of the input.
        capacity: the largest batch, in samples.
        copier: copies batches to the GPU; None if nothing needs a GPU.
    """

    def __init__(self, external: Fed, capacity: int, copier: Copier | None = None) -> None:
        self._expected = external.declared[0] if external.splitter is None else _ENCODED
        takes_gpu = copier is not None and external.may_be_on_gpu
        self._source = external.source(capacity, (0, 0))._replace(takes_gpu=takes_gpu, declared=(self._expected,))
        self._external = external
        self._copier = copier
        self._copies = not external.options["no_copy"]
        self._blocks = bool(external.options["blocking"])
        self._repeats = external.options["repeat_last"]
        self._capacity = capacity
        self._queue: deque[Output] = deque()
        self._parts: Iterator[Output] = iter(())
        self._last: Output | None = None
        self._waiting: deque[Batch] = deque()
        self._changed = threading.Condition()
        self._closed = False
        #: The layout of the batches, for the only output.
        self.layouts = [external.layouts[0]]

    def check(
        self, data: Any, layout: str | None, cuda_stream: Any = None, use_copy_kernel: bool | None = None
    ) -> CheckedBatch:
        """Check and import a batch.

        Args:
            data: the batch, as given by the user.
            layout: of the samples, if given.
            cuda_stream, use_copy_kernel: see `dali_like.graph.execution.gpu_sources.import_gpu_arrays`.

        Raises:
            SampleError: the data is not a batch, or its dtype, dimensions or layout differ from earlier batches or the
                declaration.
        """
        (column,) = as_columns(data, self._source, self._capacity)
        output = self._import(column, cuda_stream, use_copy_kernel)
        layout = layout or _layout_of(data)
        schema = None
        if isinstance(output, DeviceArray) or len(output):
            schema = check_samples(output, self._expected, self._source, 0)
            self._check_layout(layout, schema.ndim)
        return CheckedBatch(output, layout, schema)

    def feed(self, batch: CheckedBatch) -> None:
        """Append a batch to the queue."""
        with self._changed:
            if batch.schema is not None:
                self._expected = batch.schema
                if self._external.splitter is None:
                    self.layouts[0] = batch.layout or self.layouts[0]
            self._queue.append(batch.output)
            self._changed.notify_all()

    def submit(self, key: BatchKey) -> Batch:
        batch = Batch(key)
        self._waiting.append(batch)
        self.poll()
        return batch

    def poll(self) -> None:
        while self._waiting and (output := self._next()) is not None:
            self._last = output
            self._waiting.popleft().outcome = [self._hand_out(output)]

    def wait(self, batch: Batch) -> Sequence[Output]:
        self.poll()
        while batch.outcome is None:
            if self._repeats and self._last is not None:
                self._waiting.remove(batch)
                batch.outcome = [self._hand_out(self._last)]
            elif self._closed:
                raise ClosedError("the pipeline has been closed")
            elif self._blocks:
                with self._changed:
                    if not self._queue:
                        self._changed.wait(POLL_INTERVAL_S)
                check_interrupts()
                self.poll()
            else:
                raise NoInputError(f"{self._source.name} has no batch left: call feed_input() before each run()")
        outputs: Sequence[Output] = batch.outcome
        return outputs

    def _next(self) -> Output | None:
        """Return the next batch to deliver; None if the user has to feed first."""
        splitter = self._external.splitter
        if splitter is None:
            return self._queue.popleft() if self._queue else None
        while (part := next(self._parts, None)) is None and self._queue:
            self._parts = splitter.batches(self._queue.popleft()[0], self._capacity)
        return part

    def cancel(self, batch: Batch) -> None:
        if batch in self._waiting:
            self._waiting.remove(batch)
        batch.outcome = None

    def stop_waiting(self) -> None:
        """Make a pending `wait` raise ClosedError. Thread-safe."""
        self._closed = True

    def close(self) -> None:
        self._closed = True
        self._waiting.clear()
        self._queue.clear()
        self._parts = iter(())

    def _import(self, column: Any, cuda_stream: Any, use_copy_kernel: bool | None) -> Any:
        first = column[0] if isinstance(column, (list, tuple)) and column else column
        if self._copier is not None and self._source.takes_gpu and is_on_gpu(first):
            return import_gpu_arrays(column, self._external, self._copier, 0, cuda_stream, use_copy_kernel)
        if isinstance(column, np.ndarray):
            output: Output = column
        else:
            output = [as_array(value, self._source, 0) for value in column]
        return _copy(output) if self._copies else output

    def _hand_out(self, output: Any) -> Any:
        """Return the batch to deliver: a copy if it may be delivered again, since users may write to it."""
        if lies_on_gpu(output):
            assert self._copier is not None
            return self._copier.copy(output) if self._repeats and self._copies else output
        return _copy(output) if self._repeats and self._copies else output

    def _check_layout(self, layout: str | None, ndim: int) -> None:
        if not layout or self._external.splitter is not None:
            return
        if len(layout) != ndim:
            raise NdimMismatchError(f"The layout '{layout}' cannot describe {ndim}-dimensional data")
        if (known := self.layouts[0]) not in ("", layout):
            raise LayoutMismatchError(f'{self._source.name}: Expected data with layout: "{known}" and got: "{layout}"')


def _copy(output: Output) -> Output:
    return output.copy() if isinstance(output, np.ndarray) else [array.copy() for array in output]


def _layout_of(data: Any) -> str:
    """Return the layout of samples that are tensors, otherwise ""."""
    if isinstance(data, (TensorListCPU, TensorListGPU)):
        return data.layout()
    first = data[0] if isinstance(data, (list, tuple)) and data else None
    return first.layout() if isinstance(first, (TensorCPU, TensorGPU)) else ""
