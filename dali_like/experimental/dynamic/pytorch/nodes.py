"""Nodes of ``torchdata.nodes`` that read, transform and convert with dynamic mode, as in ``nvidia.dali``.

Their states are those of the reader: a loader of torchdata resumes within an epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dali_like.common.articles import with_article
from dali_like.common.extras import optional
from dali_like.errors import ArgumentError, CheckpointError, PipelineStateError
from dali_like.experimental.dynamic.epochs import EpochReader
from dali_like.experimental.dynamic.values import Batch, Tensor

optional("torchdata", "dali_like.experimental.dynamic.pytorch.nodes", "torchdata")

import torchdata.nodes as tn  # noqa: E402

__all__ = ["DictMapper", "Reader", "ToTorch"]

_STATE, _DONE = "reader", "batches"


class Reader(tn.BaseNode[dict[str, Any]]):
    """Yields the outputs of a reader as dicts, for one epoch after each reset.

    Args:
        reader_type: a class of ``ndd.readers``.
        batch_size: samples in a batch; None: single samples.
        output_names: the keys. Default: "data" and "label", for two outputs.
        arguments: of the reader.

    Raises:
        ArgumentError: the reader has another number of outputs.
    """

    def __init__(
        self,
        reader_type: type[EpochReader],
        *,
        batch_size: int | None,
        output_names: Iterable[str] | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__()
        arguments.pop("max_batch_size", None)
        self._make = lambda: reader_type(batch_size=batch_size, **arguments)
        self._reader = self._make()
        self._name = reader_type.__qualname__
        self._names = None if output_names is None else tuple(output_names)
        self._epoch: Iterator[Any] | None = None

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        """Begin an epoch, or continue the one of a state."""
        super().reset(initial_state)
        done = 0
        if initial_state is not None:
            if not initial_state.keys() >= {_STATE, _DONE}:
                raise CheckpointError(
                    f"this is not a state of {with_article(self._name)}: it has the keys {sorted(initial_state)}"
                )
            self._reader.close()
            self._reader = self._make()
            self._reader.set_state(initial_state[_STATE])
            done = initial_state[_DONE]
        elif self._epoch is not None and self._reader.is_in_epoch:  # the loop was left
            self._reader.close()
            self._reader = self._make()
        self._epoch = self._reader.rest_of_epoch(done)

    def next(self) -> dict[str, Any]:
        """Return the next outputs.

        Raises:
            PipelineStateError: there was no `reset`.
        """
        if self._epoch is None:
            raise PipelineStateError("Reader.next() called before reset(): call reset() first")
        outputs = next(self._epoch)
        if self._names is None and len(outputs) != 2:
            raise ArgumentError(f"{with_article(self._name)} has {len(outputs)} outputs: pass output_names=")
        names = self._names or ("data", "label")
        if len(names) != len(outputs):
            raise ArgumentError(f"{with_article(self._name)} has {len(outputs)} outputs; output_names= has {len(names)}")
        return dict(zip(names, outputs, strict=True))

    def get_state(self) -> dict[str, Any]:
        """Return the position of the reader, and the number of batches of this epoch."""
        return {_STATE: str(self._reader.get_state()), _DONE: self._reader.num_done}

    def get_metadata(self) -> dict[str, int]:
        """Return the sizes of the dataset and its shards; see `dali_like.Pipeline.reader_meta`."""
        return self._reader.get_metadata()


class _Behind(tn.BaseNode[Any]):
    """A node whose state is that of the node before it."""

    def __init__(self, source: Any) -> None:
        super().__init__()
        self._source = source

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        """Reset the node before this one, to its state if there is one."""
        super().reset(initial_state)
        self._source.reset(initial_state)

    def get_state(self) -> dict[str, Any]:
        """Return the state of the node before this one."""
        state: dict[str, Any] = self._source.state_dict()
        return state


class DictMapper(_Behind):
    """Applies a function to one value of each dict.

    Args:
        source: the node that yields the dicts.
        map_fn: the function. It gets a tensor or batch, and returns one.
        key: of the value.
    """

    def __init__(self, source: Any, map_fn: Callable[[Any], Tensor | Batch], key: str = "data") -> None:
        super().__init__(source)
        self._map_fn = map_fn
        self._key = key

    def next(self) -> dict[str, Any]:
        """Return the next dict."""
        values: dict[str, Any] = self._source.next()
        return {**values, self._key: self._map_fn(values[self._key])}


class ToTorch(_Behind):
    """Turns dicts of tensors or batches into tuples of PyTorch's tensors, which share their memory.

    Args:
        source: the node that yields the dicts.
        output_stream: without effect: values on a GPU are ready when they are returned.
    """

    def __init__(self, source: Any, output_stream: Any = None) -> None:
        super().__init__(source)

    def next(self) -> tuple[Any, ...]:
        """Return the next tuple.

        Raises:
            ArgumentError: values are on different GPUs.
        """
        values: dict[str, Any] = self._source.next()
        devices = {value.device for value in values.values() if value.device.device_type != "cpu"}
        if len(devices) > 1:
            raise ArgumentError(f"All GPU tensors/batches must be on the same device, not on {sorted(map(str, devices))}")
        moved = [value.to_device(device) for value in values.values() for device in devices] or list(values.values())
        return tuple(value.torch() for value in moved)
