"""Composed datasets as sources of pipelines.

With random access, a dataset is a callable: any worker computes the element at any position. The main process decides at
which position a batch begins, and how many elements it has (`dali_like.feed.composed_feeds`).

In logical shards, a dataset is the callback of a source in parts. Each shard has a worker; the main process keeps the states
(`dali_like.feed.shard_batches`).
"""

from __future__ import annotations

import os
import pickle
import struct
import threading
from collections.abc import Mapping
from typing import Any

from dali_like.common.articles import kind_of
from dali_like.engine.worker.parts import AbsentSampleError
from dali_like.errors import SampleTypeError
from dali_like.sources.composed.dataset import ComposedDataset
from dali_like.sources.composed.part_walk import PartWalk
from dali_like.sources.composed.stream import Elements, ShardEndedError
from dali_like.sources.state_format import ShardState
from dali_like.types import SampleInfo

__all__ = ["ElementCallback", "ShardElements", "pack_part", "unpack_message"]


#: Held while a thread looks for the elements that it shares with others.
_sharing = threading.Lock()


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
        self._shared: dict[int, Elements] = {}

    def __call__(self, info: SampleInfo) -> Any:
        try:
            elements: Elements = self._local.elements
        except AttributeError:
            elements = self._local.elements = self._new_elements()
        length = self.dataset.length
        position = info.idx_in_epoch if length is None else info.idx_in_epoch % length  # beyond the end is padding
        element = elements.at(info.epoch_idx, position)
        if element.__class__ is dict and not self.takes_dicts:
            refuse_dict(element)
        return element

    def _new_elements(self) -> Elements:
        """Return what evaluates the dataset in this thread. If the dataset reads, all threads of a process share it."""
        if self.dataset.num_reads == 1:
            return self.dataset.elements()
        with _sharing:
            return self._shared.setdefault(os.getpid(), self.dataset.elements())

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


#: The beginning of a part: whether it asks for states, and the number of its places.
_PART = struct.Struct("=2q")


def pack_part(packed_places: bytes, packed_states: bytes, *, wants_states: bool) -> bytes:
    """Return a part for `ShardElements`.

    Args:
        packed_places: the places of its positions in the batch, as 64-bit integers.
        packed_states: the pickled states of their shards.
        wants_states: whether the message must have the states behind the positions.
    """
    return b"".join((_PART.pack(wants_states, len(packed_places) // 8), packed_places, packed_states))


def unpack_message(message: bytes) -> tuple[dict[int, ShardState], list[int]]:
    """Return the states in the message of a part, and the shards at their end."""
    return pickle.loads(message) if message else ({}, [])


class ShardElements:
    """Computes the elements of a dataset in logical shards, part by part; see `dali_like.engine.worker.parts.PartCallback`.

    Args:
        dataset: runs in logical shards.
        num_outputs: elements are tuples of so many outputs; None: the element is the output.
        takes_dicts: whether an element may be a dict.
    """

    def __init__(self, dataset: ComposedDataset, num_outputs: int | None, *, takes_dicts: bool) -> None:
        self.dataset = dataset
        self.num_outputs = num_outputs
        self.takes_dicts = takes_dicts
        self.num_shards = dataset.shards or 1
        self._local = threading.local()

    def begin_part(self, epoch: int, text: bytes) -> _PositionsWalk:
        wants_states, count = _PART.unpack_from(text)
        end = _PART.size + 8 * count
        local, packed_states = self._local, text[end:]
        if not hasattr(local, "elements"):
            local.elements, local.packed_states = self.dataset.elements(), b""
        if packed_states != local.packed_states:
            local.states, local.packed_states = pickle.loads(packed_states), packed_states
        part = _PositionsWalk(self, local.elements, epoch, local.states, text[_PART.size : end])
        part.wants_states = bool(wants_states)
        return part

    def places_of(self, text: bytes) -> bytes:
        _, count = _PART.unpack_from(text)
        return text[_PART.size : _PART.size + 8 * count]

    def __call__(self, info: Any) -> Any:
        raise NotImplementedError

    def __reduce__(self) -> Any:
        return _shard_elements, (self.dataset, self.num_outputs, self.takes_dicts)


class _PositionsWalk(PartWalk):
    """See `dali_like.engine.worker.parts.Part`."""

    def __init__(
        self, owner: ShardElements, elements: Elements, epoch: int, states: Mapping[int, ShardState], packed_places: bytes
    ) -> None:
        super().__init__(elements, owner.num_shards, epoch, states)
        self._owner = owner
        self._is_single = owner.num_outputs is None
        self.wants_states = False
        self.packed_places = packed_places
        self.places = struct.unpack(f"={len(packed_places) // 8}q", packed_places)

    def begin(self, first: int, stride: int) -> None:
        if self._elements.reads:
            self._elements.begin(self._epoch, [first + place * stride for place in self.places], self._states)

    def at(self, position: int) -> Any:
        self._positions.append(position)
        try:
            element = self._elements.at(self._epoch, position, self._states)
        except ShardEndedError:
            self.ended.append(position % self.num_shards)
            raise AbsentSampleError from None
        if element.__class__ is dict and not self._owner.takes_dicts:
            refuse_dict(element)
        if not self._is_single:
            _check_outputs(element, self._owner.num_outputs)
        return element

    def message(self) -> bytes:
        if not (self.wants_states or self.ended):
            return b""
        states = self.states() if self.wants_states else {}
        return pickle.dumps((states, self.ended), pickle.HIGHEST_PROTOCOL)


def _shard_elements(dataset: ComposedDataset, num_outputs: int | None, takes_dicts: bool) -> ShardElements:
    return ShardElements(dataset, num_outputs, takes_dicts=takes_dicts)


def _check_outputs(element: Any, num_outputs: int | None) -> None:
    """Check that an element has the outputs of the pipeline.

    Raises:
        SampleTypeError: it has others.
    """
    if not isinstance(element, (tuple, list)) or len(element) != num_outputs:
        parts = f" of {len(element)}" if isinstance(element, (tuple, list)) else ""
        raise SampleTypeError(
            f"an element of the composed dataset is {kind_of(element)}{parts}; with num_outputs={num_outputs} "
            f"it is a tuple of {num_outputs} arrays. Return that from the last stage"
        )
