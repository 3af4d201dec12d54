"""JAX iterators that can peek at the next batch, with the interface of Common Loop Utils (CLU).

Follows ``nvidia.dali.plugin.jax.clu`` 1.53. Does not require the package ``clu``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Sharding
from numpy.typing import NDArray

from dali_like.common.tracebacks import user_frames_first
from dali_like.errors import PipelineStateError, SpecError
from dali_like.pipeline.checkpoints import Checkpoint
from dali_like.plugin.epoch_progress import LastBatchPolicy
from dali_like.plugin.jax.iterator import DALIGenericIterator, decorator_of
from dali_like.tensors import TensorListCPU

__all__ = ["DALIGenericPeekableIterator", "peekable_data_iterator"]


class _BatchSizes(NamedTuple):
    """Number of samples in a batch of one pipeline, and how many of them belong to the epoch."""

    samples: int
    within: int


class DALIGenericPeekableIterator(DALIGenericIterator):
    """Like `DALIGenericIterator`, with `peek`, which returns the next batch without taking it.

    All batches must have the same shapes and dtypes. Several threads may call ``next``, `peek`, `peek_async` and
    `element_spec`.

    Arguments and other errors: see `DALIGenericIterator`. Follows
    ``nvidia.dali.plugin.jax.clu.DALIGenericPeekableIterator`` 1.53.

    Raises:
        SpecError: from ``next`` and `peek`: the shape or dtype of a batch differs from the first batch. The batch is lost.

    >>> import numpy as np
    >>> from dali_like import fn, pipeline_def
    >>> @pipeline_def(batch_size=2)
    ... def pipeline():
    ...     return fn.external_source(source=lambda info: np.int32(info.idx_in_epoch), batch=False)
    >>> iterator = DALIGenericPeekableIterator(pipeline(), ["index"], size=4)
    >>> iterator.peek()
    {'index': Array([0, 1], dtype=int32)}
    >>> next(iterator)
    {'index': Array([0, 1], dtype=int32)}
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._lock = threading.RLock()
        self._peeked: tuple[dict[str, Any], list[_BatchSizes]] | None = None
        self._spec: dict[str, jax.ShapeDtypeStruct] | None = None
        super().__init__(*args, **kwargs)
        step = self._pipelines.step_size
        self._fetched = self._delivered = [_BatchSizes(step, step)]

    @user_frames_first
    def __next__(self) -> dict[str, Any]:
        with self._lock:
            batch, self._delivered = self._fetch()
            return batch

    @user_frames_first
    def peek(self) -> dict[str, Any]:
        """Return the batch that ``next`` will return.

        Raises:
            StopIteration: the epoch has ended.
            Exception: any error of ``next``.
        """
        with self._lock:
            self._peeked = self._fetch()
            return self._peeked[0]

    def peek_async(self) -> Future[dict[str, Any]]:
        """Call `peek` in another thread. Wait for the returned future before calling ``next``."""
        executor = ThreadPoolExecutor(max_workers=1)
        future = executor.submit(self.peek)
        executor.shutdown(wait=False)
        return future

    def reset(self) -> None:
        """Begin the next epoch. A peeked batch belongs to this epoch and is dropped."""
        with self._lock:
            self._peeked = None
            super().reset()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Resume from a state, as `DALIGenericIterator.load_state_dict`. A peeked batch is dropped."""
        with self._lock:
            self._peeked = None
            super().load_state_dict(state_dict)

    def _take_checkpoints(self) -> list[Checkpoint]:
        with self._lock:
            if self._peeked is not None:
                raise PipelineStateError("a state cannot be saved after peek(); call next() to take the peeked batch first")
            return super()._take_checkpoints()

    @property
    def element_spec(self) -> dict[str, jax.ShapeDtypeStruct]:
        """The shape and dtype of each array in a batch. Calls `peek` before the first batch."""
        with self._lock:
            if self._spec is None:
                self.peek()
            assert self._spec is not None
            return self._spec

    @property
    def is_nonpadding(self) -> NDArray[np.bool_] | jax.Array:
        """Whether each sample of the last batch from ``next`` lies within the iterator's size. All True without a size.

        A bool array of shape (samples,), over all pipelines. With a sharding it is a JAX array, sharded like the batch.
        """
        flags = np.concatenate([np.arange(each.samples) < each.within for each in self._delivered])
        return flags if self._sharding is None else jax.device_put(flags, self._sharding)

    def _fetch(self) -> tuple[dict[str, Any], list[_BatchSizes]]:
        if self._peeked is not None:
            fetched, self._peeked = self._peeked, None
            return fetched
        batch = super().__next__()
        self._check_spec(batch)
        return batch, self._fetched

    def _deliver(self, outputs: list[Sequence[TensorListCPU]]) -> dict[str, Any]:
        lengths = [len(output[0]) for output in outputs]
        self._fetched = [*map(_BatchSizes, lengths, self._progress.within(lengths))]
        return super()._deliver(outputs)

    def _check_spec(self, batch: dict[str, Any]) -> None:
        spec = {
            name: jax.ShapeDtypeStruct(value.shape, value.dtype)
            for name, value in batch.items()
            if isinstance(value, jax.Array)
        }
        if self._spec is None:
            self._spec = spec
        for name, expected in self._spec.items():
            if spec[name] != expected:
                raise SpecError(
                    f"output {name!r} has shape {spec[name].shape} and dtype {spec[name].dtype}; in the first batch it had "
                    f"{expected.shape} and {expected.dtype}. All batches of a peekable iterator must be alike"
                )


def peekable_data_iterator(
    pipeline_fn: Callable[..., Any] | None = None,
    output_map: Sequence[str] = (),
    size: int = -1,
    reader_name: str | None = None,
    auto_reset: bool | str | None = False,
    last_batch_padded: bool = False,
    last_batch_policy: LastBatchPolicy = LastBatchPolicy.FILL,
    prepare_first_batch: bool = True,
    sharding: Sharding | None = None,
    devices: Sequence[jax.Device] | None = None,
    *,
    progress: bool | str = False,
) -> Any:
    """Decorate a function as `dali_like.plugin.jax.data_iterator` does, to return a `DALIGenericPeekableIterator`.

    Follows ``nvidia.dali.plugin.jax.clu.peekable_data_iterator`` 1.53.
    """
    options = {
        "output_map": output_map,
        "size": size,
        "reader_name": reader_name,
        "auto_reset": auto_reset,
        "last_batch_padded": last_batch_padded,
        "last_batch_policy": last_batch_policy,
        "prepare_first_batch": prepare_first_batch,
        "sharding": sharding,
        "devices": devices,
        "progress": progress,
    }
    return decorator_of(DALIGenericPeekableIterator, pipeline_fn, options)
