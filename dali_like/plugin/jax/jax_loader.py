"""The data loader whose batches are JAX arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NoReturn, TypeVar

import jax
import numpy as np
from jax.sharding import Sharding

from dali_like.data.batch_trees import map_arrays
from dali_like.data.loader import DataLoader as NumpyLoader
from dali_like.data.loader_iterator import LoaderIterator, WorkerIterator
from dali_like.data.local_iterator import LocalIterator
from dali_like.errors import ArgumentClashError, ArgumentTypeError, ShardError

__all__ = ["DataLoader"]

T_co = TypeVar("T_co", covariant=True)

#: Kinds of dtypes that JAX has. Those of ml_dtypes are user-defined ones of NumPy.
_KINDS = "biufc"
_USER_DEFINED = 2


class JaxSender:
    """Puts batches on devices; see `dali_like.data.device_senders.DeviceSender`.

    JAX keeps the arrays of a batch until it has read them; on the CPU it may read them in place.
    """

    totals = None

    def __init__(self, sharding: Sharding | None, num_ahead: int) -> None:
        self.num_ahead = num_ahead
        self.num_delivered = 0
        self._sharding = sharding

    def observe(self, space: Any) -> None:
        """Do nothing: JAX copies by way of its own memory."""

    def can_send(self, turn: int) -> bool:
        """Return True: each batch gets memory of its own."""
        return True

    def send(self, batch: Any, turn: int) -> Any:
        """Begin to copy a batch.

        Raises:
            ShardError: the sharding does not apply to an array.
        """
        return map_arrays(batch, np.ndarray, self._put, lambda value: value)

    def deliver(self, sent: Any) -> Any:
        """Return a batch on the devices."""
        self.num_delivered += 1
        return sent

    def _put(self, array: np.ndarray[Any, Any]) -> Any:
        if array.dtype.kind not in _KINDS and array.dtype.isbuiltin != _USER_DEFINED:
            return array
        if self._sharding is None:
            return jax.device_put(array)
        try:
            return jax.make_array_from_process_local_data(self._sharding, array)
        except (ValueError, IndexError) as error:
            raise ShardError(
                f"{self._sharding} does not apply to an array of shape {array.shape} in this process: {error}. Pass "
                "drop_last=True if it is the last batch, and a batch_size that the devices of this process divide"
            ) from error


class JaxParts(LoaderIterator):
    """Yields batches of JAX arrays."""

    def __init__(self, options: Any, plan: Any, maker: Any, counters: Any, sender: Any = None) -> None:
        construct: Callable[..., None] = super().__init__
        construct(options, plan, maker, counters, _sender_of(options))


class JaxLocalIterator(JaxParts, LocalIterator):
    """An iterator without workers."""


class JaxWorkerIterator(JaxParts, WorkerIterator):
    """An iterator with workers."""


def _sender_of(options: Any) -> Any:
    return JaxSender(options.own["sharding"], options.own["prefetch_to_device"])


class DataLoader(NumpyLoader[T_co]):
    """`dali_like.data.DataLoader` whose batches are JAX arrays: the arrays of a batch, in any nesting. Other objects stay.

    With ``sharding=``, each array is a global one: each process loads its part of the batch, of ``batch_size`` samples, and
    the parts together are the array. ``mesh=`` gives each process its part of a composed dataset, and a
    `dali_like.data.ShardedBatchSampler` its part of another one. Without ``sharding=``, arrays are on the default device.
    The next batches that are ready are copied ahead, see ``prefetch_to_device=``. As elsewhere in JAX, elements of 64 bits
    become 32 bits without ``jax_enable_x64``.

    Raises:
        ArgumentTypeError: `sharding` is not a ``jax.sharding.Sharding``.
        ShardError: from ``next``: the sharding does not apply to an array, such as that of a smaller last batch.
    """

    _dali_like_is_library = True
    _dali_like_elsewhere: ClassVar[Mapping[str, str]] = {
        "device": "the DataLoader of dali_like.plugin.pytorch; here, sharding= says where batches go, and jax.default_device"
    }

    def _dali_like_construct(self, own: Mapping[str, Any], **given: Any) -> None:
        sharding = own["sharding"]
        if sharding is not None and not isinstance(sharding, Sharding):
            raise ArgumentTypeError(f"sharding must be a jax.sharding.Sharding, such as NamedSharding, not {sharding!r}")
        super()._dali_like_construct(own, **given)

    @property
    def _dali_like_iterator_types(self) -> tuple[type[LocalIterator], type[WorkerIterator]]:
        return JaxLocalIterator, JaxWorkerIterator

    def _dali_like_sender_for(self, options: Any, before: Any) -> Any:
        return before or _sender_of(options)

    def batch_at(self, step: int, state: Any = None) -> Any:
        """Return the batch of a step again, as NumPy arrays; see `dali_like.data.DataLoader.batch_at`."""
        batch_at: Callable[..., Any] = super().batch_at
        return map_arrays(batch_at(step, state), jax.Array, np.asarray, lambda value: value)

    def serve(self, *args: Any, **options: Any) -> NoReturn:
        """Not for JAX arrays.

        Raises:
            ArgumentClashError: always.
        """
        raise ArgumentClashError("serve lends batches in host memory: call it on a dali_like.data.DataLoader")
