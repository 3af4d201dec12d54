"""Inputs: external sources without a source, which the user feeds with batches.

What is fed lies in a queue until an iteration takes it. It may be fed in any thread, also while another one waits for it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dali_like.common.interrupts import POLL_INTERVAL_S, check_interrupts
from dali_like.device.copier import Copier
from dali_like.device.device_array import DeviceArray
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.memory.protocol import DTYPE_CODES
from dali_like.engine.memory.slot_layout import OutputSchema
from dali_like.engine.pool.batch import Batch, Output
from dali_like.engine.worker.source import Source, as_array, as_columns, check_array, is_on_gpu, kind_of_samples
from dali_like.errors import ClosedError, LayoutMismatchError, NdimMismatchError, NoInputError
from dali_like.graph.gpu_sources import take_in
from dali_like.sources.external_source import ExternalSource
from dali_like.tensors import TensorCPU, TensorListCPU
from dali_like.tensors.gpu_tensor_lists import TensorListGPU
from dali_like.tensors.gpu_tensors import TensorGPU


class Fed(NamedTuple):
    """A batch that may be fed: the samples, and their layout if one was given."""

    output: Output
    layout: str


class InputPool:
    """The batches that have been fed to one input. See `dali_like.engine.pool.base.Pool`.

    Args:
        external: what was said of the input.
        capacity: the largest batch.
        copier: copies to the GPU, where anything is wanted there.
    """

    def __init__(self, external: ExternalSource, capacity: int, copier: Copier | None = None) -> None:
        self._source = Source(
            external.name,
            _never_called,
            None,
            batch=True,
            objects=external.objects,
            verb="was fed",
            takes_gpu=external.may_be_on_gpu,
        )
        self._external = external
        self._copier = copier
        self._expected = external.declared[0]
        self._copies = not external.options["no_copy"]
        self._blocks = bool(external.options["blocking"])
        self._repeats = external.options["repeat_last"]
        self._capacity = capacity
        self._queue: deque[Output] = deque()
        self._last: Output | None = None
        self._waiting: deque[Batch] = deque()
        self._news = threading.Condition()
        self._closed = False
        #: The layout of what is fed; there is one output.
        self.layouts = [external.layouts[0]]

    def check(self, data: Any, layout: str | None, cuda_stream: Any = None, use_copy_kernel: bool | None = None) -> Fed:
        """A batch as it may be fed. For the last two arguments see `dali_like.graph.gpu_sources.take_in`.

        Raises:
            SampleError: it is no batch, or not of the dtype, dimensions and layout that were declared or fed before.
        """
        (column,) = as_columns(data, self._source, self._capacity)
        fed = Fed(self._import(column, cuda_stream, use_copy_kernel), layout or _layout_of(data))
        if isinstance(fed.output, DeviceArray) or len(fed.output):
            dtype, ndim = kind_of_samples(fed.output)
            for sample in fed.output if not isinstance(fed.output, (np.ndarray, DeviceArray)) else ():
                check_array(sample.dtype, len(sample.shape), DTYPE_CODES[dtype], ndim, self._source, 0)
            check_array(dtype, ndim, self._expected.dtype, self._expected.ndim, self._source, 0)
            self._check_layout(fed.layout, ndim)
        return fed

    def feed(self, fed: Fed) -> None:
        """Add a batch to the queue."""
        with self._news:
            if isinstance(fed.output, DeviceArray) or len(fed.output):
                dtype, ndim = kind_of_samples(fed.output)
                self._expected = OutputSchema(DTYPE_CODES[dtype], ndim)
                self.layouts[0] = fed.layout or self.layouts[0]
            self._queue.append(fed.output)
            self._news.notify_all()

    def submit(self, key: BatchKey) -> Batch:
        batch = Batch(key)
        self._waiting.append(batch)
        self.poll()
        return batch

    def poll(self) -> None:
        while self._waiting and self._queue:
            self._last = self._queue.popleft()
            self._waiting.popleft().outcome = [self._hand_out(self._last)]

    def wait(self, batch: Batch) -> Sequence[Output]:
        self.poll()
        while batch.outcome is None:
            if self._repeats and self._last is not None:
                self._waiting.remove(batch)
                batch.outcome = [self._hand_out(self._last)]
            elif self._closed:
                raise ClosedError("the pipeline has been closed")
            elif self._blocks:
                with self._news:
                    if not self._queue:
                        self._news.wait(POLL_INTERVAL_S)
                check_interrupts()
                self.poll()
            else:
                raise NoInputError(f"{self._source.name} has no batch left: call feed_input() before each run()")
        outputs: Sequence[Output] = batch.outcome
        return outputs

    def cancel(self, batch: Batch) -> None:
        if batch in self._waiting:
            self._waiting.remove(batch)
        batch.outcome = None

    def stop_waiting(self) -> None:
        """Let a `wait` that is under way end. May be called in any thread."""
        self._closed = True

    def close(self) -> None:
        self._closed = True
        self._waiting.clear()
        self._queue.clear()

    def _import(self, column: Any, cuda_stream: Any, use_copy_kernel: bool | None) -> Any:
        first = column[0] if isinstance(column, (list, tuple)) and column else column
        if self._copier is not None and self._source.takes_gpu and is_on_gpu(first):
            return take_in(column, self._external, self._copier, 0, cuda_stream, use_copy_kernel)
        if isinstance(column, np.ndarray):
            output: Output = column
        else:
            output = [as_array(value, self._source, 0) for value in column]
        return _copy(output) if self._copies else output

    def _hand_out(self, output: Any) -> Any:
        """A batch as it is delivered: a copy if it may be delivered again, since users may write into what they get."""
        if isinstance(output, DeviceArray) or (isinstance(output, list) and output and isinstance(output[0], DeviceArray)):
            assert self._copier is not None
            return self._copier.copy(output) if self._repeats and self._copies else output
        return _copy(output) if self._repeats and self._copies else output

    def _check_layout(self, layout: str | None, ndim: int) -> None:
        if not layout:
            return
        if len(layout) != ndim:
            raise NdimMismatchError(f"The layout '{layout}' cannot describe {ndim}-dimensional data")
        if (known := self.layouts[0]) not in ("", layout):
            raise LayoutMismatchError(f'{self._source.name}: Expected data with layout: "{known}" and got: "{layout}"')


def _copy(output: Output) -> Output:
    return output.copy() if isinstance(output, np.ndarray) else [array.copy() for array in output]


def _layout_of(data: Any) -> str:
    """The layout that the samples have, if they are tensors."""
    if isinstance(data, (TensorListCPU, TensorListGPU)):
        return data.layout()
    first = data[0] if isinstance(data, (list, tuple)) and data else None
    return first.layout() if isinstance(first, (TensorCPU, TensorGPU)) else ""


def _never_called(info: Any) -> Any:
    raise NotImplementedError
