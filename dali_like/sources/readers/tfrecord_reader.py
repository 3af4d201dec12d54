"""``fn.readers.tfrecord``: features of examples in TFRecord files."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Mapping
from typing import Annotated, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dali_like.common.extras import installed
from dali_like.common.saved_arguments import SAVED, SavedTexts
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, BrokenFileError
from dali_like.sources.readers.reader import reader
from dali_like.sources.readers.records import Record, RecordReader, numbers_of_index, whole_size
from dali_like.sources.readers.stored_files import shown
from dali_like.sources.readers.tfrecord_example import BYTES, FLOATS, INTEGERS, parse_example, values_of
from dali_like.sources.readers.tfrecord_features import Feature, feature_from, float32, int64, string
from dali_like.types import SampleInfo

#: Before the data: its length, and the checksum of the length. Behind the data: its checksum.
_HEAD = struct.Struct("<QI")
_LENGTH_BYTES = 8
_CHECKSUM = struct.Struct("<I")
_FRAMING_BYTES = _HEAD.size + _CHECKSUM.size

_KINDS = {int64: INTEGERS, float32: FLOATS, string: BYTES}
_KIND_NAMES = {INTEGERS: "int64", FLOATS: "float32", BYTES: "string"}


@reader(path="readers.tfrecord")
class TFRecordReader(RecordReader):
    """Reads features of examples from TFRecord files.

    The function returns a dict with a node for each feature. ``dali_like.tfrecord`` has the types of features::

        features = {
            "image/encoded": tfrecord.FixedLenFeature((), tfrecord.string, ""),
            "image/class/label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
            "boxes": tfrecord.VarLenFeature([4], tfrecord.float32, 0.0),
        }
        inputs = fn.readers.tfrecord(path=paths, features=features)
        images = fn.decoders.image(inputs["image/encoded"])

    DALI's ``tfrecord2idx`` writes indexes. Without indexes, the reader builds them, and stores each beside its file as
    ``.name.index``, or in ``~/.cache/dali_like`` if the folder is read-only. The checksums of records are verified if
    google-crc32c is installed: ``pip install google-crc32c``.

    Args:
        path: paths of the TFRecord files.
        features: a dict of features by their names in the examples.
        index_path: paths of the indexes, one for each file. Default: the reader builds the indexes.
        dont_use_mmap, use_o_direct: without effect.

    Returns:
        Arrays of dtype INT64 or FLOAT. A string is an array of its bytes, of dtype UINT8. If an example has fewer elements
        than the shape of a `FixedLenFeature`, the others have the default value. If an example lacks a feature, its array is
        empty: its first extent is 0. An array without dimensions has the default value then.
    """

    def __init__(
        self,
        *,
        path: SavedTexts,
        features: Annotated[Any, SAVED],
        index_path: SavedTexts | None = None,
        dont_use_mmap: bool = False,
        use_o_direct: bool = False,
    ) -> None:
        super().__init__(path, index_path)
        if self._indexes and len(self._indexes) != len(self._names):
            raise ArgumentError(
                f"Number of index files needs to match the number of data files: path has {len(self._names)}, index_path "
                f"has {len(self._indexes)}"
            )
        if use_o_direct and not dont_use_mmap:
            raise ArgumentClashError("Cannot use use_o_direct with dont_use_mmap=False: pass dont_use_mmap=True, too")
        self._features = checked_features(features)
        self._encoded_names = {name.encode(): name for name in self._features}

    @property
    def num_outputs(self) -> int:  # type: ignore[override]
        return len(self._features)

    @property
    def output_names(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(self._features)

    @property
    def dtype(self) -> tuple[np.dtype[Any], ...]:
        return tuple(feature.numpy_dtype for feature in self._features.values())

    async def read(self, index: int, info: SampleInfo) -> Any:
        record = await self.record(index)
        example = checked_example(record)
        try:
            found = parse_example(example, self._encoded_names)
            values = {self._encoded_names[name]: values_of(example, spans) for name, spans in found.items()}
        except ValueError as error:
            raise record.broken(f"is not a tf.train.Example: {error}", _HEAD.size) from error
        return tuple(
            output_of(record, name, feature, values[name]) if name in values else feature.missing
            for name, feature in self._features.items()
        )

    def _given_spans(self, paths: list[str]) -> list[NDArray[np.int64]]:
        spans = []
        for index in self._indexes:
            positions = numbers_of_index(self.files.text_lines(index), index, "position size")
            spans.append(np.cumsum(positions, axis=1))
        return spans

    def _scan(self, path: str, file: BinaryIO) -> list[tuple[int, int]]:
        spans: list[tuple[int, int]] = []
        size, position = whole_size(file), 0
        while position < size:
            file.seek(position)
            length = _length_of(Record(path, position, np.frombuffer(file.read(_HEAD.size), np.uint8)))
            end = position + _FRAMING_BYTES + length
            if end > size:
                raise BrokenFileError(
                    f"{shown(path)} is not a TFRecord file, or it is truncated: the record at byte {position} ends at byte "
                    f"{end}, the file at byte {size}",
                    path,
                    position,
                )
            spans.append((position, end))
            position = end
        return spans


def checked_features(features: Any) -> dict[str, Feature]:
    """Return the features of a reader.

    Raises:
        ArgumentTypeError: this is not a dict of features.
        ArgumentError: `features` is empty.
    """
    if not isinstance(features, Mapping):
        raise ArgumentTypeError(
            f"features must be a dict of features of dali_like.tfrecord by their names, not {features!r}"
        )
    checked = {}
    for name, value in features.items():
        if not isinstance(name, str):
            raise ArgumentTypeError(f"features: a name must be a string, not {name!r}")
        try:
            checked[name] = feature_from(value)
        except ArgumentError as error:
            raise type(error)(f"the feature {name!r}: {error}") from None
    if not features:
        raise ArgumentError("features must have at least one feature")
    return checked


def checked_example(record: Record) -> NDArray[np.uint8]:
    """Return the data of a record, after a look at its length and checksums.

    Raises:
        BrokenFileError: these are wrong.
    """
    length = _length_of(record)
    if length + _FRAMING_BYTES != len(record.data):
        raise record.broken(f"has a length of {length} bytes, which does not fit. The index may be of another file")
    data = record.data[_HEAD.size : _HEAD.size + length]
    (checksum,) = _CHECKSUM.unpack_from(record.data.data, _HEAD.size + length)
    if _is_wrong(data, checksum):
        raise record.broken("has a wrong checksum: its data is damaged", _HEAD.size)
    return data


def output_of(record: Record, name: str, feature: Feature, stored: tuple[int, Any]) -> NDArray[Any]:
    """Return the array for a feature.

    Args:
        record: the record of the feature, for errors.
        name: of the feature.
        feature: type and shape of the array.
        stored: kind and values; see `values_of`.

    Raises:
        BrokenFileError: the values do not fit the feature.
    """
    kind, values = stored
    if values is None or not len(values):
        values = np.empty(0, feature.numpy_dtype)
    elif kind != _KINDS[feature.dtype]:
        raise record.broken(f"has a feature {name!r} of type {_KIND_NAMES[kind]}, not {_KIND_NAMES[_KINDS[feature.dtype]]}")
    if feature.dtype == string:
        return np.asarray(values[0] if len(values) and kind == BYTES else values)
    if feature.shape is not None:
        shape = feature.shape
        size = math.prod(shape)
        if len(values) > size:
            raise record.broken(f"has {len(values)} elements in {name!r}: Output tensor shape {shape} is too small")
        if len(values) == size:
            return np.asarray(values).reshape(shape)
        filled = np.full(size, feature.default, feature.numpy_dtype)
        filled[: len(values)] = values
        return filled.reshape(shape)
    row = math.prod(feature.partial_shape)
    if len(values) % row:
        raise record.broken(
            f"has {len(values)} elements in {name!r}: Feature size not matching partial shape {feature.partial_shape}"
        )
    return np.asarray(values).reshape(-1, *feature.partial_shape)


def _length_of(record: Record) -> int:
    """Return the length of the data, which the beginning of the record holds."""
    if len(record.data) < _HEAD.size:
        raise record.broken("ends within its length. The file is truncated, or the index is of another file")
    length, checksum = _HEAD.unpack_from(record.data.data)
    if _is_wrong(record.data[:_LENGTH_BYTES], checksum):
        raise record.broken("is not TFRecord: the checksum of its length is wrong. The index may be of another file")
    return int(length)


def _is_wrong(data: NDArray[np.uint8], checksum: int) -> bool:
    """Return whether a checksum is known to be wrong. The format masks checksums: it rotates them and adds a number."""
    crc32c = _crc32c()
    if crc32c is None:
        return False
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF != checksum


@functools.cache
def _crc32c() -> Callable[[NDArray[np.uint8]], int] | None:
    """Return the function for checksums; None if its library is not installed."""
    return getattr(installed("google_crc32c"), "value", None)
