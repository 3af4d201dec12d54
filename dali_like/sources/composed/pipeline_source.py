"""Composed datasets as sources of pipelines.

With random access, a dataset is a callable: any worker computes the element at any position. The main process decides at
which position a batch begins, and how many elements it has (`dali_like.feed.position_plan`).

In logical shards, a dataset is the callback of a source in parts. Each shard has a worker; the main process keeps the states
(`dali_like.feed.shard_batches`).
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from dali_like.engine.worker.parts import AbsentSampleError
from dali_like.errors import SampleTypeError
from dali_like.sources.composed.dataset import ComposedDataset
from dali_like.sources.composed.part_walk import PartWalk
from dali_like.sources.composed.stream import Elements, ShardEndedError
from dali_like.types import SampleInfo

__all__ = ["ElementCallback", "ShardElements"]


class ElementCallback:
    """Returns the element at a position, in any thread.

    Args:
        dataset: has random access.
        takes_dicts: whether an element may be a dict.
    """

    def __init__(self, dataset: ComposedDataset, *, takes_dicts: bool) -> None:
        self.dataset = dataset
        self.takes_dicts = takes_dicts
        self._local = threading.local()

    def __call__(self, info: SampleInfo) -> Any:
        try:
            elements: Elements = self._local.elements
        except AttributeError:
            elements = self._local.elements = self.dataset.elements()
        length = self.dataset.length
        position = info.idx_in_epoch if length is None else info.idx_in_epoch % length  # beyond the end is padding
        element = elements.at(info.epoch_idx, position)
        if element.__class__ is dict and not self.takes_dicts:
            refuse_dict(element)
        return element

    def __reduce__(self) -> Any:
        return _element_callback, (self.dataset, self.takes_dicts)


def _element_callback(dataset: ComposedDataset, takes_dicts: bool) -> ElementCallback:
    return ElementCallback(dataset, takes_dicts=takes_dicts)


def refuse_dict(element: Mapping[Any, Any]) -> None:
    """Refuse an element with named fields.

    Raises:
        SampleTypeError: always.
    """
    names = ", ".join(f"element[{name!r}]" for name in element)
    raise SampleTypeError(
        "an element of the composed dataset is a dict, and the outputs of a pipeline have an order instead of names. Pass "
        f"dataset.map(lambda element: ({names})) and num_outputs={len(element)}, or dtype=types.OBJECT"
    )


class ShardElements:
    """Computes the elements of a dataset in logical shards, part by part, in any thread.

    See `dali_like.engine.worker.parts.PartCallback`. A part is pickled: the places of its positions, and the states of their
    shards. So is a message: the states behind them, and the shards at their end.

    Args:
        dataset: runs in logical shards.
        num_outputs: elements are tuples of so many outputs; None: the element is the output.
        takes_dicts: whether an element may be a dict.
    """

    def __init__(self, dataset: ComposedDataset, num_outputs: int | None, *, takes_dicts: bool) -> None:
        self.dataset = dataset
        self.num_outputs = num_outputs
        self.takes_dicts = takes_dicts
        self._num_shards = dataset.shards or 1
        self._local = threading.local()

    def begin_part(self, epoch: int, text: bytes) -> Sequence[int]:
        places, states = pickle.loads(text)
        local = self._local
        if not hasattr(local, "elements"):
            local.elements = self.dataset.elements()
        local.walk = PartWalk(local.elements, self._num_shards, epoch, states)
        return places  # type: ignore[no-any-return]

    def __call__(self, info: SampleInfo) -> Any:
        try:
            element = self._local.walk.at(info.idx_in_epoch)
        except ShardEndedError:
            raise AbsentSampleError from None
        if element.__class__ is dict and not self.takes_dicts:
            refuse_dict(element)
        if self.num_outputs is not None:
            _check_outputs(element, self.num_outputs)
        return element

    def end_part(self) -> bytes:
        walk: PartWalk = self._local.walk
        return pickle.dumps((walk.states(), walk.ended), pickle.HIGHEST_PROTOCOL)

    def __reduce__(self) -> Any:
        return _shard_elements, (self.dataset, self.num_outputs, self.takes_dicts)


def _shard_elements(dataset: ComposedDataset, num_outputs: int | None, takes_dicts: bool) -> ShardElements:
    return ShardElements(dataset, num_outputs, takes_dicts=takes_dicts)


def _check_outputs(element: Any, num_outputs: int) -> None:
    """Check that an element has the outputs of the pipeline.

    Raises:
        SampleTypeError: it has others.
    """
    if not isinstance(element, (tuple, list)) or len(element) != num_outputs:
        parts = f" of {len(element)}" if isinstance(element, (tuple, list)) else ""
        raise SampleTypeError(
            f"an element of the composed dataset is a {type(element).__qualname__}{parts}; with num_outputs={num_outputs} "
            f"it is a tuple of {num_outputs} arrays. Return that from the last stage"
        )
