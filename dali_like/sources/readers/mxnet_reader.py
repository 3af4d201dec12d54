"""``fn.readers.mxnet``: images and labels in RecordIO files."""

from __future__ import annotations

import struct
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dali_like.common.saved_arguments import SavedTexts
from dali_like.errors import ArgumentError, BrokenFileError
from dali_like.sources.readers.reader import reader
from dali_like.sources.readers.records import Record, RecordReader, numbers_of_index, whole_size
from dali_like.sources.readers.stored_files import shown
from dali_like.types import SampleInfo

#: First word of each part of a record.
_MAGIC = 0xCED7230A
_MAGIC_BYTES = struct.pack("<I", _MAGIC)
#: The magic number, and a word with the kind of the part in 3 bits and its length in 29. Data follows, and 0 to 3 bytes of
#: padding.
_PART = struct.Struct("<II")
#: Kinds of parts. Data that contains the magic number is split there, and the number itself left out.
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
#: The data begins with the number of labels, a label, and two identifiers. If the number is not 0, so many labels follow.
_HEADER = struct.Struct("<IfQQ")


@reader(path="readers.mxnet")
class MXNetReader(RecordReader):
    """Reads images and labels from RecordIO files of MXNet.

    MXNet's ``im2rec`` writes the files and the index. Without an index, the reader builds one. It stores the index beside
    the file as ``.name.index``, or in ``~/.cache/dali_like`` if the folder is read-only.

    Args:
        path: paths of the RecordIO files.
        index_path: path of the index: a text file with a number and a position per line. With several files, positions go on
            counting from file to file. Default: the reader builds an index.

    Returns:
        The encoded image, of shape (number of bytes,) and dtype UINT8, and the labels, of shape (number of labels,) and
        dtype FLOAT. The samples are in the order of their positions in the files.
    """

    num_outputs = 2
    dtype = np.uint8, np.float32
    ndim = 1, 1
    shuffles_files = True

    def __init__(self, *, path: SavedTexts, index_path: SavedTexts | None = None) -> None:
        super().__init__(path, index_path)
        if len(self._indexes) > 1:
            raise ArgumentError(f"RecordIOReader supports only a single index file; index_path has {len(self._indexes)}")

    def file_sizes(self) -> list[int]:
        sizes: list[int] = np.bincount(self._files, minlength=len(self._names)).tolist()
        return sizes

    async def read(self, index: int, info: SampleInfo) -> Any:
        record = await self.record(index)
        data = self._data_of(record)
        if len(data) < _HEADER.size:
            raise record.broken(f"has {len(data)} bytes of data, less than the {_HEADER.size} bytes of its header")
        num_labels, label, _, _ = _HEADER.unpack_from(data.data)
        image = _HEADER.size + 4 * num_labels
        if image > len(data):
            raise record.broken(f"has {num_labels} labels in {len(data)} bytes of data")
        labels = data[_HEADER.size : image].view("<f4") if num_labels else np.array([label])
        return data[image:], labels.astype(np.float32)

    def _data_of(self, record: Record) -> NDArray[np.uint8]:
        """Return the data of a record, without the framing of its parts."""
        parts: list[NDArray[np.uint8]] = []
        position = 0
        while True:
            kind, length = _part_at(record, position)
            begin, position = position + _PART.size, position + _PART.size + _padded(length)
            if begin + length > len(record.data):
                raise record.broken("ends within a part. The file is truncated, or the index is of another file", begin)
            parts.append(record.data[begin : begin + length])
            if len(parts) == 1 and kind == _WHOLE:
                return parts[0]
            if (kind == _FIRST) != (len(parts) == 1) or kind == _WHOLE:
                raise record.broken(f"has a part of kind {kind} as number {len(parts)}", begin)
            if kind == _LAST:
                break
        magic = np.frombuffer(_MAGIC_BYTES, np.uint8)
        return np.concatenate([parts[0], *[piece for part in parts[1:] for piece in (magic, part)]])

    def _given_spans(self, paths: list[str]) -> list[NDArray[np.int64]]:
        (index,) = self._indexes
        begins = np.unique(numbers_of_index(self.files.text_lines(index), index, "number position")[:, 1])
        borders = np.cumsum([0, *[self.files.size(path) for path in paths]])
        if begins[-1] >= borders[-1]:
            raise BrokenFileError(
                f"{shown(index)} has a record at byte {begins[-1]}, but the files end at byte {borders[-1]}. They "
                "are truncated, or the index is of other files",
                index,
            )
        ends = np.append(begins[1:], borders[-1])
        files = np.searchsorted(borders, begins, "right") - 1
        spans = np.stack([begins, np.minimum(ends, borders[files + 1])], axis=1) - borders[files, np.newaxis]
        return [spans[files == number] for number in range(len(paths))]

    def _scan(self, path: str, file: BinaryIO) -> list[tuple[int, int]]:
        spans: list[tuple[int, int]] = []
        size, position, begin = whole_size(file), 0, 0
        while position < size:
            file.seek(position)
            head = np.frombuffer(file.read(_PART.size), np.uint8)
            kind, length = _part_at(Record(path, position, head), 0)
            position += _PART.size + _padded(length)
            if position > size:
                raise BrokenFileError(
                    f"{shown(path)} is truncated: the record at byte {begin} ends at byte {position}, the file at "
                    f"byte {size}",
                    path,
                    size,
                )
            if kind in (_WHOLE, _LAST):
                spans.append((begin, position))
                begin = position
        if begin != size:
            raise BrokenFileError(f"{shown(path)} is truncated: the record at byte {begin} has no last part", path, size)
        return spans


def _part_at(record: Record, position: int) -> tuple[int, int]:
    """Return the kind and length of the part of a record that begins at a position."""
    if position + _PART.size > len(record.data):
        raise record.broken("ends within a part. The file is truncated, or the index is of another file", position)
    magic, word = _PART.unpack_from(record.data.data, position)
    if magic != _MAGIC:
        raise record.broken("is not RecordIO: wrong magic number. The index may be of another file", position)
    return word >> 29, word & ((1 << 29) - 1)


def _padded(length: int) -> int:
    return -(-length // 4) * 4
