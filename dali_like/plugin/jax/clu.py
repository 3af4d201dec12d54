"""Iterators for JAX that can be asked for the next batch without taking it, as Common Loop Utils (CLU) has them.

The names are those of ``nvidia.dali.plugin.jax.clu`` 1.53; the package ``clu`` is not needed.
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

from dali_like.errors import PipelineStateError, SpecError
from dali_like.pipeline.checkpoints import Checkpoint
from dali_like.plugin.epoch_progress import LastBatchPolicy
from dali_like.plugin.jax.iterator import DALIGenericIterator, decorator_of
from dali_like.tensors import TensorListCPU

__all__ = ["DALIGenericPeekableIterator", "peekable_data_iterator"]


class _Extent(NamedTuple):
    """How many samples a batch has, and how many of them at most belong to the epoch."""

    samples: int
    room: int


class DALIGenericPeekableIterator(DALIGenericIterator):
    """As `DALIGenericIterator`, and can show the next batch without taking it. All batches must have one shape and dtype.

    ``next``, `peek`, `peek_async` and `element_spec` may be used by several threads.

    Arguments and errors are those of `DALIGenericIterator`, and one more. They follow
    ``nvidia.dali.plugin.jax.clu.DALIGenericPeekableIterator`` 1.53.

    Raises:
        SpecError: from ``next`` and `peek`: a batch has other shapes or dtypes than the first one. It is lost.

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
        self._peeked: tuple[dict[str, Any], _Extent] | None = None
        self._spec: dict[str, jax.ShapeDtypeStruct] | None = None
        super().__init__(*args, **kwargs)
        step = self._pipelines.step_size
        self._taken = self._given = _Extent(step, step)

    def __next__(self) -> dict[str, Any]:
        with self._lock:
            batch, self._given = self._fetch()
            return batch

    def peek(self) -> dict[str, Any]:
        """The batch that ``next`` will give.

        Raises:
            Exception: what ``next`` raises, StopIteration at the end of the epoch among it.
        """
        with self._lock:
            self._peeked = self._fetch()
            return self._peeked[0]

    def peek_async(self) -> Future[dict[str, Any]]:
        """`peek`, in another thread: a future of the batch that ``next`` will give, if that waits for the future."""
        executor = ThreadPoolExecutor(max_workers=1)
        future = executor.submit(self.peek)
        executor.shutdown(wait=False)
        return future

    def reset(self) -> None:
        """Begin the next epoch. A batch that has been peeked at is of this one, and is dropped."""
        with self._lock:
            self._peeked = None
            super().reset()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """As `DALIGenericIterator.load_state_dict`. A batch that has been peeked at is dropped."""
        with self._lock:
            self._peeked = None
            super().load_state_dict(state_dict)

    def _take_checkpoints(self) -> list[Checkpoint]:
        with self._lock:
            if self._peeked is not None:
                raise PipelineStateError(
                    "a state does not know of a batch that has been peeked at; take it by next() before"
                )
            return super()._take_checkpoints()

    @property
    def element_spec(self) -> dict[str, jax.ShapeDtypeStruct]:
        """The shape and dtype of each array in a batch. Peeks if there has been no batch yet."""
        with self._lock:
            if self._spec is None:
                self.peek()
            assert self._spec is not None
            return self._spec

    @property
    def is_nonpadding(self) -> NDArray[np.bool_] | jax.Array:
        """For each sample of the batch that ``next`` gave last, in all pipelines, whether it is within the iterator's size.

        An array of bools of shape (samples,), for JAX and sharded like the batch if that is. Without a size, all are True.
        """
        flags = np.arange(self._given.samples) < self._given.room
        return flags if self._sharding is None else jax.device_put(flags, self._sharding)

    def _fetch(self) -> tuple[dict[str, Any], _Extent]:
        if self._peeked is not None:
            fetched, self._peeked = self._peeked, None
            return fetched
        batch = super().__next__()
        self._check_spec(batch)
        return batch, self._taken

    def _deliver(self, outputs: list[Sequence[TensorListCPU]]) -> dict[str, Any]:
        self._taken = _Extent(sum(len(output[0]) for output in outputs), self._progress.left)
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
                    f"{expected.shape} and {expected.dtype}. The batches of a peekable iterator must be alike"
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
    progress: bool = False,
) -> Any:
    """As `dali_like.plugin.jax.data_iterator`, for iterators that are a `DALIGenericPeekableIterator`.

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
