"""The form of elements in caches: arrays behind a description of their structure. No pickle, so that files can be trusted.

::

    | bytes of the structure: one word | structure, as JSON | padding | arrays, each aligned |

Numbers are arrays, too, so that elements of the same shapes have the same structure, which is parsed once.
"""

from __future__ import annotations

import functools
import json
import math
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.common.articles import full_kind_of
from dali_like.engine.memory.protocol import WORD_BYTES, align
from dali_like.errors import CorruptionError, SampleTypeError

__all__ = ["decode", "encode"]

_ALIGNMENT = 64
_PADDING = bytes(_ALIGNMENT)
_MOST_INT = 1 << 63
#: Reads the word in front of the structure.
_unpack_size = struct.Struct("<Q").unpack_from
#: Copying elements up to this size once more takes less time than writing their parts one by one.
_FEW_BYTES = 1 << 14
#: Structures of elements, parsed.
_MOST_STRUCTURES = 4096


class _Encoder:
    """Collects the arrays of one element."""

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.arrays: list[NDArray[Any]] = []

    def structure(self, value: Any) -> tuple[Any, ...]:  # noqa: PLR0911  # one for each kind of value
        """Return the structure of a value.

        Raises:
            SampleTypeError: it cannot be stored.
        """
        kind = value.__class__
        if kind is np.ndarray and not value.dtype.hasobject and value.dtype.names is None:  # most parts are
            return self._stored("array", value)
        if kind is tuple or kind is list:
            return "tuple" if kind is tuple else "list", tuple([self.structure(part) for part in value])
        if kind is dict and all(key.__class__ is str for key in value):
            return "dict", tuple([(key, self.structure(part)) for key, part in value.items()])
        if value is None:
            return ("none",)
        if kind is str or kind is bytes:
            data = np.frombuffer(value.encode("utf-8", "surrogatepass") if kind is str else value, np.uint8)
            return self._stored("text" if kind is str else "bytes", data)
        if kind in (bool, int, float) and not (kind is int and not -_MOST_INT <= value < _MOST_INT):
            return self._stored(kind.__name__, np.asarray(value))
        if isinstance(value, np.generic) and not value.dtype.hasobject:
            return self._stored("scalar", np.asarray(value))
        if kind is np.memmap and not value.dtype.hasobject and value.dtype.names is None:
            return self._stored("array", value)
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor) and value.device.type == "cpu":
            return self._stored("tensor", value.detach().numpy())
        raise SampleTypeError(
            f"the cache behind {self.stage} cannot store {full_kind_of(value)}: it stores arrays, "
            "numbers, texts, bytes, and tuples, lists and dicts of them with texts as keys. Convert it before the cache, "
            "for example with numpy.asarray"
        )

    def _stored(self, kind: str, array: NDArray[Any]) -> tuple[Any, ...]:
        array = np.asarray(array, order="C")
        self.arrays.append(array.view(np.int64) if array.dtype.kind in "mM" else array)  # dates have no buffer
        return kind, _name_of(array.dtype), array.shape


@functools.lru_cache(64)
def _name_of(dtype: np.dtype[Any]) -> str:
    return dtype.str


def encode(element: Any, stage: str) -> list[Any]:
    """Return the parts of an element: bytes and contiguous arrays to write one after another.

    Args:
        stage: name of the stage that the element comes from, for messages.

    Raises:
        SampleTypeError: the element cannot be stored.
    """
    if element.__class__ is tuple and (joined := _joined(element)) is not None:
        return [joined]
    encoder = _Encoder(stage)
    head = _head(encoder.structure(element))
    parts: list[Any] = [head]
    end = len(head)
    for array in encoder.arrays:
        if nbytes := array.nbytes:
            if gap := -end % _ALIGNMENT:
                parts.append(_PADDING[:gap])
            parts.append(array)
            end += gap + nbytes
    return parts if end > _FEW_BYTES else [b"".join(parts)]


def _joined(element: tuple[Any, ...]) -> bytes | None:
    """Return the content of a few small arrays of usual types, which most elements are; None for others."""
    kinds = tuple([(array.dtype, array.shape) for array in element if array.__class__ is np.ndarray])
    if len(kinds) != len(element):
        return None
    fronts = _fronts(kinds)
    if fronts is None:
        return None
    parts: list[Any] = fronts * 2  # a list of the right length
    parts[::2], parts[1::2] = fronts, element
    try:
        return b"".join(parts)
    except (TypeError, ValueError, BufferError):  # not contiguous
        return None


@functools.lru_cache(_MOST_STRUCTURES)
def _fronts(kinds: tuple[tuple[np.dtype[Any], tuple[int, ...]], ...]) -> list[bytes] | None:
    """Return the bytes in front of each array of a tuple; None if the arrays are large, empty or of unusual types."""
    if any(dtype.kind not in "biufc" or 0 in shape for dtype, shape in kinds):
        return None
    head = _head(("tuple", tuple(("array", _name_of(dtype), shape) for dtype, shape in kinds)))
    fronts: list[bytes] = []
    end = len(head)
    for dtype, shape in kinds:
        gap = -end % _ALIGNMENT
        fronts.append(_PADDING[:gap] if fronts else head + _PADDING[:gap])
        end += gap + math.prod(shape) * dtype.itemsize
    return fronts if fronts and end <= _FEW_BYTES else None


@functools.lru_cache(_MOST_STRUCTURES)
def _head(structure: tuple[Any, ...]) -> bytes:
    """Return the bytes in front of the arrays."""
    text = json.dumps(structure, separators=(",", ":")).encode()
    return len(text).to_bytes(WORD_BYTES, "little") + text


def decode(content: memoryview) -> Any:
    """Return the element of a content. Its arrays are read-only views.

    Raises:
        CorruptionError: the content is not one of `encode`.
    """
    try:
        (size,) = _unpack_size(content)
        make, places = _plan(bytes(content[WORD_BYTES : WORD_BYTES + size]))
        return make(iter([_array(content, *place) for place in places]))
    except (ValueError, TypeError, KeyError, IndexError, struct.error) as error:
        raise CorruptionError("an entry of a cache is damaged: something has written outside of its own memory") from error


def _array(content: memoryview, begin: int, dtype: np.dtype[Any], shape: tuple[int, ...], count: int) -> NDArray[Any]:
    if not count:
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, content, begin)


_Maker = Callable[[Iterator[NDArray[Any]]], Any]
_Place = tuple[int, np.dtype[Any], tuple[int, ...], int]


@functools.lru_cache(_MOST_STRUCTURES)
def _plan(structure: bytes) -> tuple[_Maker, list[_Place]]:
    """Return a function that makes an element from its arrays, and the places of the arrays."""
    leaves: list[tuple[np.dtype[Any], tuple[int, ...], int]] = []
    make = _maker(json.loads(structure), leaves)
    places: list[_Place] = []
    end = WORD_BYTES + len(structure)
    for dtype, shape, count in leaves:
        if count:
            end = align(end, _ALIGNMENT)
        places.append((end, dtype, shape, count))
        end += count * dtype.itemsize
    return make, places


def _maker(structure: Any, leaves: list[tuple[np.dtype[Any], tuple[int, ...], int]]) -> _Maker:
    kind, *rest = structure
    if kind == "none":
        return lambda _: None
    if kind in ("tuple", "list"):
        parts = [_maker(part, leaves) for part in rest[0]]
        if kind == "tuple":
            if all(part[0] == "array" for part in rest[0]):
                return tuple
            return lambda arrays: tuple([part(arrays) for part in parts])
        return lambda arrays: [part(arrays) for part in parts]
    if kind == "dict":
        named = [(key, _maker(part, leaves)) for key, part in rest[0]]
        return lambda arrays: {key: part(arrays) for key, part in named}
    dtype, shape = np.dtype(rest[0]), tuple(rest[1])
    leaves.append((dtype, shape, int(np.prod(shape, dtype=np.int64))))
    convert = _CONVERSIONS[kind]
    return lambda arrays: convert(next(arrays))


def _tensor(array: NDArray[Any]) -> Any:
    import torch  # optional; the element held a tensor

    return torch.from_numpy(array.copy())  # PyTorch has no read-only tensors


_CONVERSIONS: dict[str, Callable[[NDArray[Any]], Any]] = {
    "array": lambda array: array,
    "tensor": _tensor,
    "scalar": lambda array: array[()],
    "bool": lambda array: array.item(),
    "int": lambda array: array.item(),
    "float": lambda array: array.item(),
    "text": lambda array: array.tobytes().decode("utf-8", "surrogatepass"),
    "bytes": lambda array: array.tobytes(),
}
